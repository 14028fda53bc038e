// See engine.h: an engine from its options to its end. Its memory is in engine_memory.cpp, its
// queue of steps in engine_steps.cpp.
#include "engine/engine.h"

#include <algorithm>
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

// What ranks do before the first step may take one of them longer than others.
constexpr std::chrono::milliseconds kLoadLimit{60'000};

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

}  // namespace inferd
