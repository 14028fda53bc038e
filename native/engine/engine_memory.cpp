// The memory of an engine: whether the model, its steps and its KV cache fit, and where they go.
#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/memory/host_memory.h"
#include "engine/engine.h"

namespace inferd {
namespace {

// As much as any plan that a scheduler writes: what it admits at once, a history, and for each slot
// its block table twice and its sampling, rows and lists.
int64_t largest_plan_bytes(const PlanLimits& limits) {
  constexpr int64_t kAdmittedBytes = 4 << 20, kSlotBytes = 16 << 10, kTableBytes = 32;
  return kAdmittedBytes + 4 * int64_t{limits.max_len} +
         (limits.max_slots + 1) * (kSlotBytes + kTableBytes * limits.max_blocks);
}

}  // namespace

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

}  // namespace inferd
