// See engine.h. Longer than other files: the life of an engine, in its order.
#include "engine/engine.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/memory/host_memory.h"
#include "engine/backends.h"
#include "models/config/kv_scales.h"
#include "models/config/quantization.h"
#include "models/config/tensor_names.h"
#include "models/registry.h"

namespace inferd {
namespace {

// Room for a plan; larger ones, which admit many long prompts at once, make it grow.
constexpr int64_t kPlanBytes = 1 << 20;
constexpr int32_t kMaxRanks = 64;
// What ranks do before the first step may take one of them longer than others.
constexpr std::chrono::milliseconds kLoadLimit{60'000};

DType parse_dtype(const std::string& name, const char* option) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  throw Error(ErrorCode::kUsage,
              format("%s is %s; f32, f16 and bf16 are known.", option, in_quotes(name).c_str()));
}

DType parse_kv_dtype(const std::string& name) {
  if (name == "fp8") return DType::kF8;
  if (name == "int8") return DType::kI8;
  if (name == "f32" || name == "f16" || name == "bf16") return parse_dtype(name, "kvDtype");
  throw Error(ErrorCode::kUsage, format("kvDtype is %s; f32, f16, bf16, fp8 and int8 are known.",
                                        in_quotes(name).c_str()));
}

// As much as any plan that a scheduler writes: what it admits at once, a history, and for each slot
// its block table twice and its sampling, rows and lists.
int64_t largest_plan_bytes(const PlanLimits& limits) {
  constexpr int64_t kAdmittedBytes = 4 << 20, kSlotBytes = 16 << 10, kTableBytes = 32;
  return kAdmittedBytes + 4 * int64_t{limits.max_len} +
         (limits.max_slots + 1) * (kSlotBytes + kTableBytes * limits.max_blocks);
}

bool is_narrow(DType t) { return t == DType::kF8 || t == DType::kI8; }

const char* dtype_name(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kF8:
      return "fp8";
    case DType::kI8:
      return "int8";
    default:
      return "bf16";
  }
}

AllReduce parse_all_reduce(const std::string& name) {
  if (name == "auto") return AllReduce::kAuto;
  if (name == "own") return AllReduce::kOwn;
  if (name == "nccl") return AllReduce::kNccl;
  throw Error(ErrorCode::kUsage,
              "allReduce is " + in_quotes(name) + "; auto, own and nccl are known.");
}

void check_option(int64_t value, int64_t min, int64_t max, const char* name) {
  if (value >= min && value <= max) return;
  throw Error(ErrorCode::kUsage,
              format("%s is %lld, outside %lld..%lld.", name, static_cast<long long>(value),
                     static_cast<long long>(min), static_cast<long long>(max)));
}

void check_options(const EngineOptions& o) {
  check_option(o.threads, 0, 1024, "threads");
  check_option(o.block_size, 1, 1024, "blockSize");
  check_option(o.max_slots, 1, 65536, "maxSlots");
  check_option(o.max_batch_tokens, 1, 1 << 20, "maxBatchTokens");
  check_option(o.max_model_len, 1, 1 << 24, "maxModelLen");
  check_option(o.sliding_window, 0, 1 << 24, "slidingWindow");
  for (const int32_t size : o.graph_sizes) check_option(size, 1, 65536, "graphSizes");
  for (const int32_t size : o.prefill_graph_sizes)
    check_option(size, 1, 65536, "prefillGraphSizes");
  check_quantization(o.quantization);
  check_option(o.world_size, 1, kMaxRanks, "worldSize");
  check_option(o.rank, 0, o.world_size - 1, "rank");
  check_option(o.drafts.max_tokens, 0, kMaxDrafts, "drafts");
  check_option(o.drafts.ngram_max, 1, kMaxNgram, "ngramMax");
  check_option(o.drafts.ngram_min, 1, o.drafts.ngram_max, "ngramMin");
  drafts_by_network(o.drafts.method);
  if (!(o.drafts.forced_rate <= 1)) throw Error(ErrorCode::kUsage, "forcedRate is above 1.");
  check_option(o.adapters.places, 0, kMaxAdapterPlaces, "adapter places");
  if (o.adapters.places > 0) check_option(o.adapters.max_rank, 1, kMaxAdapterRank, "maxRank");
  check_option(o.comm_timeout_ms, 1, 86'400'000, "commTimeoutMs");
  parse_all_reduce(o.all_reduce);
}

// What the checkpoint says in its own way. One that holds the model without what is around it, as
// those of embedding models often do, has names such as "layers.0.mlp.up_proj.weight"; an output
// head must then be the embedding.
void take_dialect(ModelConfig& config, const Checkpoint& checkpoint) {
  const Dialect dialect = checkpoint.dialect();
  if (config.newer && checkpoint.find(config.newer->holds) != nullptr)
    config.names = config.newer->names;
  if (!dialect.names.empty()) config.names = dialect.names;
  if (dialect.norms_hold_offset) config.norm_offset = 0;
  if (const int64_t rows = dialect.paired_head_rows; rows > 0)
    config.paired = {{"self_attn.q_proj", rows, 0, false}, {"self_attn.k_proj", rows, 0, false}};
  const NameMap bare = {{"model.*", "*"}};
  if (find_tensor(checkpoint, config.names, kEmbeddingTensor) == nullptr &&
      find_tensor(checkpoint, bare, kEmbeddingTensor) != nullptr)
    config.names = bare;
}

// Layers that are full beside layers with a window stay full: the model was trained so.
void replace_windows(ModelConfig& config, int32_t window) {
  bool some = false;
  config.each_window([&](int32_t of_layer) { some = some || of_layer > 0; });
  config.each_window([&](int32_t& of_layer) {
    if (of_layer > 0 || !some) of_layer = window;
  });
}

// The most steps with samples, which lengths depend on, that may be in flight when this plan is
// submitted (see PLAN.unread in actors/messages/step.ts); of what is no plan any number, as the
// checker refuses it.
int32_t unread_steps(std::span<const std::byte> plan) {
  PlanHeader header;
  if (plan.size() < sizeof header) return INT32_MAX;
  std::memcpy(&header, plan.data(), sizeof header);
  const bool known = header.layout_version == kLayoutVersion && header.unread >= 0;
  return known ? header.unread : INT32_MAX;
}

Shard shard_of(const EngineOptions& o) {
  if (o.dp_attention && o.world_size > 1)
    return {.whole_experts = true, .spread = {.rank = o.rank, .ranks = o.world_size}};
  return {
      .rank = o.rank, .size = o.world_size, .whole_experts = o.expert_parallel && o.world_size > 1};
}

// A largest graph of all slots is added when a smaller size would leave some batches without one.
GraphPlan plan_graphs(const EngineOptions& o, const PlanLimits& limits) {
  GraphPlan g{.sizes = o.graph_sizes,
              .prefill_sizes = o.prefill_graph_sizes,
              .max_context = limits.max_len};
  const int32_t most = std::min(limits.max_slots, limits.max_batch_tokens);
  std::sort(g.sizes.begin(), g.sizes.end());
  const bool larger = !g.sizes.empty() && g.sizes.back() > most;
  std::erase_if(g.sizes, [&](int32_t size) { return size > most; });
  if (larger && (g.sizes.empty() || g.sizes.back() < most)) g.sizes.push_back(most);
  std::sort(g.prefill_sizes.begin(), g.prefill_sizes.end());
  std::erase_if(g.prefill_sizes, [&](int32_t size) { return size > limits.max_batch_tokens; });
  return g;
}

}  // namespace

Engine::Engine(const EngineOptions& options) : options_(options) {
  check_options(options);
  if (options.kv_dtype != "auto") kv_dtype_ = parse_kv_dtype(options.kv_dtype);
  ModelConfig config = read_model_config(options.model_path, options.model_config);
  if (options.sliding_window > 0) replace_windows(config, options.sliding_window);
  config.shard = shard_of(options);
  check_divides(config, config.shard);

  std::unique_ptr<Checkpoint> checkpoint;
  if (!options.load_dummy) checkpoint = open_checkpoint(options.model_path);
  if (checkpoint != nullptr) take_dialect(config, *checkpoint);
  const StoredTensor* embedding =
      checkpoint == nullptr ? nullptr : find_tensor(*checkpoint, config.names, kEmbeddingTensor);
  const DType stored = embedding != nullptr && embedding->floating
                           ? embedding->dtype
                           : config.dtype.value_or(DType::kBF16);
  weight_dtype_ =
      options.weight_dtype == "auto" ? stored : parse_dtype(options.weight_dtype, "weightDtype");

  backend_ = make_backend(options, weight_dtype_);
  if (is_narrow(kv_dtype_) && !backend_->info().narrow_kv) {
    throw Error(
        ErrorCode::kUnsupported,
        format("The backend %s cannot hold keys and values as %s; set the cache's dtype to auto, "
               "bf16, f16 or f32.",
               backend_->info().name.c_str(), dtype_name(kv_dtype_)));
  }
  if (!backend_->info().host_memory) fit_dtypes();
  model_ = std::make_unique<Model>(std::move(config), *backend_, options.max_model_len);
  OpenedDrafter network = open_network();
  std::vector<KvSpec> specs = kv_specs();
  if (checkpoint != nullptr && kv_dtype_ == DType::kF8)
    for (KvSpec& spec : specs) take_kv_scales(*checkpoint, model_->config(), spec);
  kv_ = std::make_unique<KvCache>(std::move(specs), kv_dtype_, options.block_size);
  const auto keeps = [&](const WeightFormat& format) { return backend_->refuses(format).empty(); };
  // Codes are kept where nobody asks for another type. What is widened rounds less in f16 than in
  // bf16, where the backend has a choice.
  const WeightFormat plain = plain_format(weight_dtype_);
  const KeptFormats kept{keeps, plain, backend_->info().host_memory ? kFormatF16 : plain,
                         backend_->info().ordered_rows, backend_->info().float4_linears};
  const auto as_stored = [&](const TensorSlice& slice) {
    if (options.weight_dtype != "auto") return plain;
    return checkpoint != nullptr ? kept_format_of(*checkpoint, model_->config(), slice, kept)
                                 : dummy_format_of(model_->config(), slice, kept);
  };
  model_->describe(weight_dtype_, choose_formats(options.quantization, keeps, as_stored));
  if (drafter_ != nullptr) {
    // Its own codes are widened: it is small.
    drafter_->describe(weight_dtype_, choose_formats(options.quantization, keeps,
                                                     [&](const TensorSlice&) { return plain; }));
  }
  if (options.world_size > 1) join_ranks();
  check_backend_runs();
  loader_ = checkpoint != nullptr ? std::make_unique<WeightLoader>(
                                        model_->parts(), std::move(checkpoint), model_->config())
                                  : std::make_unique<WeightLoader>(model_->parts(), weight_dtype_);
  if (drafter_ != nullptr) {
    drafter_loader_ =
        network.checkpoint != nullptr
            ? std::make_unique<WeightLoader>(drafter_->parts(), std::move(network.checkpoint),
                                             drafter_->config())
            : std::make_unique<WeightLoader>(drafter_->parts(), weight_dtype_);
  }
  count_weights();
  limits_ = {.max_slots = options.max_slots,
             .max_len = options.max_model_len,
             .max_blocks = (options.max_model_len + options.block_size - 1) / options.block_size,
             .block_size = options.block_size,
             .num_blocks = 0,
             .num_swap_blocks = 0,
             .max_batch_tokens = options.max_batch_tokens,
             .vocab_size = static_cast<int32_t>(model_->config().vocab_size),
             .max_sample = 1 + options.drafts.max_tokens,
             .drafts_in_blocks = drafter_ != nullptr,
             .forced_rate = options.drafts.forced_rate,
             .adapter_places = options.adapters.places};
  Arena measure(nullptr);
  StepBuffers::carve(measure, *model_, drafter_.get(), backend_->info(), limits_);
  step_bytes_ = measure.peak();
  check_fits();
  if (backend_->info().graphs) graphs_ = plan_graphs(options, limits_);
}

void Engine::join_ranks() {
  if (model_->shard().spreads() && !backend_->info().spreads_experts) {
    throw Error(ErrorCode::kUnsupported,
                format("The backend %s spreads no experts over ranks that attend to sequences of "
                       "their own; set parallel.enable_dp_attention to false.",
                       backend_->info().name.c_str()));
  }
  using std::chrono::milliseconds;
  const RankGroup group = {.id = options_.group,
                           .rank = options_.rank,
                           .size = options_.world_size,
                           .alone = options_.alone,
                           .limit = milliseconds(options_.comm_timeout_ms),
                           .all_reduce = parse_all_reduce(options_.all_reduce),
                           .devices = options_.rank_devices,
                           .fault_at = options_.comm_fault_at,
                           .fault_sleep = milliseconds(options_.comm_fault_sleep_ms)};
  backend_->join_ranks(group, join_on_host(group));
}

void Engine::agree(std::span<int32_t> values) {
  Comm* comm = backend_->comm();
  if (comm == nullptr) return;
  if (checker_ != nullptr) throw Error(ErrorCode::kUsage, "agree comes before allocateKv.");
  const std::chrono::milliseconds limit(options_.comm_timeout_ms);
  comm->set_limit(std::max(limit, kLoadLimit));
  backend_->meet_ranks();
  comm->minimum(values);
  comm->set_limit(limit);
}

void Engine::check_backend_runs() const {
  const auto stop_if = [&](const std::string& refusal) {
    if (refusal.empty()) return;
    throw Error(ErrorCode::kUnsupported, format("The backend %s cannot run this model: its %s.",
                                                backend_->info().name.c_str(), refusal.c_str()));
  };
  const auto check = [&](const auto& what) { stop_if(backend_->refuses(what)); };
  for (const KvSpec& spec : kv_->specs()) stop_if(backend_->refuses_scales(spec));
  for (const LayerShape& shape : shapes()) check(shape);
  for (const WeightFormat& weights : model_->linear_formats()) check(weights);
  if (drafter_ == nullptr) return;
  for (const WeightFormat& weights : drafter_->linear_formats()) check(weights);
}

OpenedDrafter Engine::open_network() {
  if (options_.drafts.max_tokens == 0 || !drafts_by_network(options_.drafts.method)) return {};
  if (!backend_->info().drafters) {
    throw Error(ErrorCode::kUnsupported,
                format("The backend %s runs no network that drafts; set speculative.method = "
                       "\"ngram\" or \"none\".",
                       backend_->info().name.c_str()));
  }
  OpenedDrafter opened = open_drafter({.method = options_.drafts.method,
                                       .path = options_.drafts.model_path,
                                       .target_path = options_.model_path,
                                       .dummies = options_.load_dummy,
                                       .max_len = options_.max_model_len},
                                      *backend_, *model_);
  drafter_ = std::move(opened.drafter);
  return opened;
}

std::vector<LayerShape> Engine::shapes() const {
  std::vector<LayerShape> all = model_->shapes();
  if (drafter_ != nullptr)
    all.insert(all.end(), drafter_->shapes().begin(), drafter_->shapes().end());
  return all;
}

std::vector<KvSpec> Engine::kv_specs() const {
  std::vector<KvSpec> all = model_->kv_specs();
  if (drafter_ != nullptr)
    all.insert(all.end(), drafter_->kv_specs().begin(), drafter_->kv_specs().end());
  return all;
}

// Bytes of what this rank keeps, parameters of the whole model. What two parts take from a
// checkpoint, as a tied head and its embedding do, is one parameter.
void Engine::count_weights() {
  std::set<std::string> counted;
  for (const WeightPart& part : model_->parts()) {
    const TensorSlice& s = part.slice;
    weight_bytes_ += bytes_of(part);
    if (counted.insert(s.name).second) parameters_ += s.stored_rows() * s.stored_cols();
  }
  parameters_ += model_->parameters_elsewhere();
  if (drafter_ == nullptr) return;
  for (const WeightPart& part : drafter_->parts()) weight_bytes_ += bytes_of(part);
}

// Before anything is loaded, which can take minutes; what steps need besides, and the KV cache, is
// known later. Host memory is shared and grows by swapping: nothing is refused there.
void Engine::check_fits() const {
  const BackendInfo& backend = backend_->info();
  if (backend.host_memory || weight_bytes_ + step_bytes_ <= backend.free_bytes) return;
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  throw Error(
      ErrorCode::kOutOfMemory,
      format("The model does not fit on %s: its weights need %.2f GiB (%.2f billion parameters, "
             "%s) and steps of %d tokens %.2f GiB, together %.2f GiB, and %.2f of %.2f GiB are "
             "free; take a smaller model or free memory of the GPU.",
             backend.name.c_str(), gib(weight_bytes_), static_cast<double>(parameters_) / 1e9,
             dtype_name(weight_dtype_), options_.max_batch_tokens, gib(step_bytes_),
             gib(weight_bytes_ + step_bytes_), gib(backend.free_bytes), gib(backend.total_bytes)));
}

// A device computes in one 16-bit type, in which it holds weights, and keys and values unless they
// have 8 bits.
void Engine::fit_dtypes() {
  const BackendInfo& backend = backend_->info();
  const char* type = dtype_name(backend.activation);
  if (options_.weight_dtype == "f32") {
    throw Error(
        ErrorCode::kUnsupported,
        format("The backend %s computes in 16 bits; the weights cannot be f32, set the dtype "
               "to auto, bf16 or f16.",
               backend.name.c_str()));
  }
  weight_dtype_ = backend.activation;
  if (is_narrow(kv_dtype_)) return;
  if (options_.kv_dtype != "auto" && kv_dtype_ != backend.activation) {
    throw Error(ErrorCode::kUnsupported,
                format("The backend %s holds keys and values of this model as %s, and %s is asked "
                       "for; set the cache's dtype to auto, %s, fp8 or int8.",
                       backend.name.c_str(), type, dtype_name(kv_dtype_), type));
  }
  kv_dtype_ = backend.activation;
}

Engine::~Engine() {
  // The stream may still read what the members hold.
  while (!finish(1000)) {
  }
  try {
    if (trace_ != nullptr) backend_->stop_trace();
  } catch (...) {  // nobody is left to tell
  }
}

bool Engine::finish(int64_t limit_ms) {
  // A step may wait for ranks that take no part any more, and the others would for this one.
  if (Comm* comm = backend_->comm(); comm != nullptr)
    comm->abort(format("rank %d was closed", options_.rank), ErrorCode::kClosed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  for (; pending_ > 0; --pending_, prepared_ = false) {
    if (prepared_) continue;
    const auto left = end - std::chrono::steady_clock::now();
    const int64_t us = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
    try {
      if (!backend_->wait_step(oldest_step(), std::max<int64_t>(us, 0))) return false;
    } catch (...) {  // it failed, so it is over; nobody is left to tell
    }
  }
  if (adapters_ == nullptr) return true;
  const auto left = end - std::chrono::steady_clock::now();
  const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  return adapters_->finish(std::max<int64_t>(ms, 0));
}

LoadProgress Engine::load(int64_t max_bytes) {
  if (!loader_->progress().done)
    loader_->load(max_bytes);
  else if (drafter_ != nullptr && !drafter_loader_->progress().done)
    drafter_loader_->load(max_bytes);
  LoadProgress progress = loader_->progress();
  if (drafter_ != nullptr) {
    const LoadProgress own = drafter_loader_->progress();
    progress = {progress.done_bytes + own.done_bytes, progress.total_bytes + own.total_bytes,
                progress.done && own.done};
  }
  if (progress.done && runner_ == nullptr) {
    model_->finish_loading();
    if (drafter_ != nullptr) drafter_->finish_loading();
    allocate_step_memory();
  }
  return progress;
}

void Engine::allocate_step_memory() {
  Backend& backend = *backend_;
  slots_ = std::make_unique<Slots>(backend, limits_);
  if (const AdapterOptions& o = options_.adapters; o.places > 0)
    adapters_ = std::make_unique<Adapters>(backend, *model_, o.places, o.max_rank);
  constraints_ = std::make_unique<Constraints>(backend, slots_->tables());
  step_memory_ = DeviceBuffer(backend, step_bytes_);
  Arena arena(step_memory_.as<void>());
  buffers_ = StepBuffers::carve(arena, *model_, drafter_.get(), backend.info(), limits_);
  const std::vector<LayerShape> layers = shapes();
  const int64_t own =
      backend.reserve_steps({.max_rows = static_cast<int32_t>(max_sampled(limits_)),
                             .max_tokens = limits_.max_batch_tokens,
                             // A graph has room for more than short sequences.
                             .max_context = std::max(limits_.max_len, kShortContext),
                             .max_logit_rows = buffers_.max_logit_rows,
                             .block_size = options_.block_size,
                             .vocab_size = limits_.vocab_size,
                             .head_rows = model_->ids().count,
                             .layers = layers});
  step_bytes_ += own + slots_->bytes();
  runner_ =
      std::make_unique<StepRunner>(backend, *model_, *slots_, *constraints_, *kv_, swap_, buffers_,
                                   graphs_, options_.drafts, drafter_.get(), adapters_.get());
  for (StagedStep& s : steps_) runner_->prepare(s, limits_);
}

ModelInfo Engine::info() const {
  const BackendInfo& backend = backend_->info();
  const HostMemory host = host_memory();
  const ModelConfig& config = model_->config();
  return {.architecture = config.architecture,
          .vocab_size = config.vocab_size,
          .num_layers = static_cast<int32_t>(config.layers.size()),
          .hidden_size = config.hidden_size,
          .max_positions = config.max_positions,
          .parameters = parameters_,
          .weight_bytes = weight_bytes_,
          .table_bytes = model_->table_bytes(),
          .dtype = dtype_name(weight_dtype_),
          .kv_dtype = dtype_name(kv_dtype_),
          .kv_scaled_layers = kv_->scaled_layers(),
          .block_bytes = kv_->block_bytes(),
          .step_bytes = step_bytes_,
          .free_bytes = backend.host_memory ? host.free_bytes : backend.free_bytes,
          .total_bytes = backend.host_memory ? host.total_bytes : backend.total_bytes,
          .host_free_bytes = host.free_bytes,
          .backend = backend.name};
}

// Where the cache lies in host memory, the swap space comes on top of it.
void Engine::check_kv_fits(int64_t num_blocks, int64_t num_swap_blocks) const {
  const bool same_memory = backend_->info().host_memory;
  const auto gib = [](double bytes) { return bytes / (1 << 30); };
  const int64_t bytes = kv_->block_bytes();
  const std::vector<KvSpec>& specs = kv_->specs();
  const KvSpec& spec = specs.front();
  const bool alike = std::all_of(specs.begin(), specs.end(), [&](const KvSpec& other) {
    return other.kv_heads == spec.kv_heads && other.head_dim == spec.head_dim &&
           other.arrays == spec.arrays;
  });
  const std::string sizes =
      alike ? format(" (%zu layers x %d x %d heads x %d dims x %d tokens x %s%s)", specs.size(),
                     spec.arrays, spec.kv_heads, spec.head_dim, options_.block_size,
                     dtype_name(kv_dtype_), kv_dtype_ == DType::kI8 ? " and scales" : "")
            : "";
  const auto check_fits = [&](int64_t blocks, const char* what, int64_t free) {
    if (blocks <= free / bytes) return;
    throw Error(ErrorCode::kOutOfMemory,
                format("%lld %s of %lld bytes%s need %.2f GiB, and %.2f GiB are free.",
                       static_cast<long long>(blocks), what, static_cast<long long>(bytes),
                       sizes.c_str(), gib(static_cast<double>(blocks) * static_cast<double>(bytes)),
                       gib(static_cast<double>(free))));
  };
  check_fits(num_blocks, "KV blocks", info().free_bytes);
  if (num_swap_blocks == 0) return;
  const int64_t host_blocks = num_swap_blocks + (same_memory ? num_blocks : 0);
  check_fits(host_blocks, same_memory ? "KV and swap blocks" : "swap blocks in host memory",
             host_memory().free_bytes);
}

void Engine::allocate_kv(int64_t num_blocks, int64_t num_swap_blocks) {
  if (runner_ == nullptr)
    throw Error(ErrorCode::kUsage, "allocateKv comes after the weights are loaded.");
  if (checker_ != nullptr) throw Error(ErrorCode::kUsage, "allocateKv may be called once.");
  check_option(num_blocks, 1, INT32_MAX / options_.block_size, "numBlocks");
  check_option(num_swap_blocks, 0, INT32_MAX / options_.block_size, "numSwapBlocks");
  check_kv_fits(num_blocks, num_swap_blocks);
  kv_->allocate(*backend_, static_cast<int32_t>(num_blocks));
  if (num_swap_blocks > 0) allocate_swap(num_swap_blocks);
  limits_.num_blocks = static_cast<int32_t>(num_blocks);
  limits_.num_swap_blocks = static_cast<int32_t>(num_swap_blocks);
  checker_ = std::make_unique<PlanChecker>(
      limits_, [this](int32_t id) { return adapters_ != nullptr && adapters_->loaded(id); });
  // Taking host memory can wait for all devices, and so for ranks that wait for this one.
  if (backend_->comm() != nullptr) {
    for (StagedStep& s : steps_) s.words = HostBuffer(*backend_, largest_plan_bytes(limits_));
  }
  runner_->record_graphs(steps_[0]);
}

void Engine::allocate_swap(int64_t num_swap_blocks) {
  SwapPool pool{.arrays = kv_->arrays()};
  swap_memory_ = HostBuffer(*backend_, num_swap_blocks * pool.block_bytes());
  pool.host = swap_memory_.as<void>();
  pool.num_blocks = static_cast<int32_t>(num_swap_blocks);
  backend_->reserve_swap(pool);
  swap_ = std::move(pool);
  for (StagedStep& s : steps_) runner_->prepare_swaps(s);
}

Adapters& Engine::adapters() const {
  if (adapters_ != nullptr) return *adapters_;
  throw Error(ErrorCode::kUsage, "There is no room for adapters: the option adapters is absent.");
}

Adapter Engine::load_adapter(int32_t id, const std::string& folder) {
  return adapters().load(id, folder);
}

void Engine::begin_adapter(int32_t id, const std::string& folder) { adapters().begin(id, folder); }

std::optional<Adapter> Engine::adapter_read(int32_t id) { return adapters().take(id); }

void Engine::unload_adapter(int32_t id) { adapters().unload(id); }

void Engine::submit(std::span<const std::byte> plan) {
  if (checker_ == nullptr) throw Error(ErrorCode::kUsage, "submit comes after allocateKv.");
  if (pending_ == kMaxInFlight)
    throw Error(ErrorCode::kUsage, "Two steps are in flight; wait for one before the next submit.");
  if (plan.size() % 4 != 0 || plan.size() / 4 > INT32_MAX)
    throw Error(ErrorCode::kBadPlan, "Bad step plan: its size is not a number of words.");
  if (unread_steps(plan) < sampling_steps())
    throw Error(ErrorCode::kUsage, "The plan counts on a step in flight; wait for that first.");
  StagedStep& step = steps_[static_cast<size_t>(next_step_)];
  const auto bytes = static_cast<int64_t>(plan.size());
  if (step.words.bytes() < bytes)
    step.words = HostBuffer(*backend_, std::max<int64_t>(kPlanBytes, 2 * bytes));
  if (!plan.empty()) std::memcpy(step.words.as<void>(), plan.data(), plan.size());
  checker_->accept({step.words.as<const int32_t>(), plan.size() / 4}, step.plan);
  runner_->stage(step);
  step.submitted = step.started = step.finished = std::chrono::steady_clock::now();
  backend_->run_step(next_step_, [runner = runner_.get(), &step] { runner->run(step); });
  next_step_ = (next_step_ + 1) % kMaxInFlight;
  ++pending_;
}

int32_t Engine::sampling_steps() const {
  int32_t count = 0;
  for (int32_t i = 0; i < pending_; ++i) {
    const auto slot = static_cast<size_t>((oldest_step() + i) % kMaxInFlight);
    count += steps_[slot].plan.samples.empty() ? 0 : 1;
  }
  return count;
}

int64_t Engine::wait(std::span<std::byte> result, int64_t timeout_ms) {
  if (pending_ == 0) throw Error(ErrorCode::kUsage, "wait was called with no step in flight.");
  const int32_t oldest = oldest_step();
  if (!prepared_) {
    StepFault fault = StepFault::kNone;
    try {
      if (!backend_->wait_step(oldest, std::clamp<int64_t>(timeout_ms, 0, 86'400'000) * 1000))
        return 0;
    } catch (const Error& e) {
      fault = e.fatal                             ? StepFault::kFatal
              : e.code == ErrorCode::kOutOfMemory ? StepFault::kOutOfMemory
                                                  : StepFault::kStep;
      last_error_ = e.what();
    } catch (const std::bad_alloc&) {
      fault = StepFault::kOutOfMemory;
      last_error_ = "out of host memory inside a step";
    } catch (const std::exception& e) {
      fault = StepFault::kStep;
      last_error_ = e.what();
    }
    prepared_ = true;
    if (trace_ != nullptr && fault == StepFault::kNone) trace_step(oldest);
    StagedStep& step = steps_[static_cast<size_t>(oldest)];
    if (fault == StepFault::kNone) {
      step.mark_stuck();
      for (size_t i = 0; i < step.plan.samples.size(); ++i)
        checker_->settle(step.plan, i, step.tokens_given(i));
    }
    result_.prepare(step, fault, limits_.vocab_size,
                    static_cast<int64_t>(backend_->step_device_us(oldest)));
  }
  const int64_t bytes = result_.bytes();
  if (static_cast<int64_t>(result.size()) < bytes) {
    throw Error(ErrorCode::kUsage, format("The result needs %lld bytes and the buffer has %zu.",
                                          static_cast<long long>(bytes), result.size()));
  }
  result_.write(result);
  prepared_ = false;
  --pending_;
  return bytes;
}

std::vector<ExpertWork> Engine::expert_work() {
  if (runner_ == nullptr || pending_ > 0)
    throw Error(ErrorCode::kUsage, "expertWork comes after allocateKv, and while no step runs.");
  std::vector<ExpertWork> work;
  for (const ExpertLoad& load : model_->expert_loads()) {
    std::vector<int32_t> ends(static_cast<size_t>(load.held) + 1);
    backend_->download(ends.data(), load.offsets, ends.size() * sizeof(int32_t));
    std::adjacent_difference(ends.begin(), ends.end(), ends.begin());
    ends.erase(ends.begin());
    work.push_back({std::move(ends), load.chosen, load.bytes, load.parameters});
  }
  return work;
}

std::vector<MadeDrafts> Engine::made_drafts() {
  if (runner_ == nullptr || pending_ > 0 || drafter_ == nullptr)
    throw Error(ErrorCode::kUsage,
                "madeDrafts needs a network that drafts, and that no step runs.");
  const int32_t width = options_.drafts.max_tokens;
  // The step that ran last; its plan is there until the one after the next is submitted.
  const auto last = static_cast<size_t>((next_step_ + kMaxInFlight - 1) % kMaxInFlight);
  std::vector<MadeDrafts> made;
  for (const DraftRow& row : steps_[last].plan.drafts) {
    const auto i = static_cast<int32_t>(made.size());
    MadeDrafts& m = made.emplace_back();
    m.slot = row.slot;
    m.ids.resize(static_cast<size_t>(row.count));
    backend_->download(m.ids.data(), buffers_.drafts + int64_t{i} * width,
                       m.ids.size() * sizeof(int32_t));
    // Those of fewer drafts came to their end before.
    if (row.count < steps_[last].plan.drafts.front().count) continue;
    const Tensor logits = drafter_->logits(i, 1);
    m.logits.resize(static_cast<size_t>(logits.cols()));
    backend_->download(m.logits.data(), logits.data, m.logits.size() * sizeof(float));
  }
  return made;
}

void Engine::start_trace(int64_t max_events) {
  if (trace_ != nullptr) throw Error(ErrorCode::kUsage, "A recording is running already.");
  check_option(max_events, 1, 1 << 28, "maxEvents");
  auto trace = std::make_unique<Trace>(max_events);
  backend_->start_trace(*trace);
  trace_ = std::move(trace);
}

std::unique_ptr<Trace> Engine::stop_trace() {
  if (trace_ == nullptr) throw Error(ErrorCode::kUsage, "No recording is running.");
  backend_->stop_trace();
  trace_->sort();
  return std::move(trace_);
}

void Engine::trace_step(int32_t slot) {
  const StagedStep& step = steps_[static_cast<size_t>(slot)];
  TraceEvent event{.start_ns = trace_ns(step.started),
                   .end_ns = trace_ns(step.finished),
                   .value = step.plan.header.step,
                   .name = trace_->name("step"),
                   .lane = 0,
                   .kind = TraceKind::kStep};
  if (!backend_->step_window(slot, event.start_ns, event.end_ns)) return;
  if (event.start_ns >= trace_->started_ns()) trace_->add(event);  // else it ran before
}

}  // namespace inferd
