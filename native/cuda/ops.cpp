// Ops on rows of activations, and the plan on the slot tables. Inside run_step, on its thread.
#include <cstring>

#include "core/error.h"
#include "cuda/activation.h"
#include "cuda/block_copy.h"
#include "cuda/cuda_backend.h"
#include "cuda/embedding.h"
#include "cuda/gemm.h"
#include "cuda/norm.h"
#include "cuda/slots.h"
#include "cuda/weights.h"

namespace inferd::cuda {
namespace {

TableType table_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return TableType::kF32;
    case DType::kF16:
      return TableType::kF16;
    case DType::kBF16:
      return TableType::kBF16;
    default:
      throw Error(ErrorCode::kUnsupported, "The embedding table must be f32, f16 or bf16.");
  }
}

}  // namespace

DeviceSlots device_slots(const SlotTables& t) {
  return {.tokens = t.tokens,
          .lengths = t.lengths,
          .prompt_lens = t.prompt_lens,
          .blocks = t.blocks,
          .sampling = t.sampling,
          .bias_ids = t.bias_ids,
          .bias_values = t.bias_values,
          .num_bias = t.num_bias,
          .masked_ids = t.masked_ids,
          .num_masked = t.num_masked,
          .max_slots = t.max_slots,
          .max_len = t.max_len,
          .max_blocks = t.max_blocks,
          .max_bias = t.max_bias,
          .max_masked = t.max_masked};
}

// Small plans go to the device in one copy; of a large one, the kernel reads what it needs from
// page-locked memory.
void CudaBackend::apply_slots(const SlotTables& t, const int32_t* plan_words) {
  PlanHeader header;
  std::memcpy(&header, plan_words, sizeof header);
  if (header.num_new_slots == 0 && header.num_block_sets == 0) return;
  index_plan(plan_words, plan_index_);
  const size_t index_bytes = plan_index_.size() * sizeof(int32_t);
  const size_t word_bytes = static_cast<size_t>(header.words) * sizeof(int32_t);
  const bool small = index_bytes + word_bytes + 32 <= kPlanBytes;
  const size_t words_at = (index_bytes + 15) / 16 * 16;
  auto* staged = current_->staging.take<std::byte>(words_at + (small ? word_bytes : 0));
  std::memcpy(staged, plan_index_.data(), index_bytes);
  const int32_t* words = plan_words;
  auto* device =
      static_cast<std::byte*>(plan_words_.get(words_at + (small ? word_bytes : 0), stream_.get()));
  if (small) {
    std::memcpy(staged + words_at, plan_words, word_bytes);
    words = reinterpret_cast<const int32_t*>(device + words_at);
  }
  copy_in(device, staged, words_at + (small ? word_bytes : 0));
  check(cuda::apply_slots(device_slots(t), words, reinterpret_cast<const int32_t*>(device),
                          stream_.get()),
        "apply_slots");
}

void CudaBackend::copy_blocks(std::span<const KvLayer> layers, const BlockCopy* pairs, int32_t n) {
  if (layers.empty() || n == 0) return;
  const KvLayer& kv = layers[0];
  const size_t base_bytes = 2 * layers.size() * sizeof(void*);
  const size_t pair_bytes = static_cast<size_t>(n) * sizeof(BlockCopy);
  auto* staged = current_->staging.take<std::byte>(base_bytes + pair_bytes);
  auto** bases = reinterpret_cast<void**>(staged);
  for (const KvLayer& layer : layers) {
    *bases++ = layer.k;
    *bases++ = layer.v;
  }
  std::memcpy(staged + base_bytes, pairs, pair_bytes);
  auto* device = static_cast<std::byte*>(block_copies_.get(base_bytes + pair_bytes, stream_.get()));
  copy_in(device, staged, base_bytes + pair_bytes);
  check(
      cuda::copy_blocks({.bases = reinterpret_cast<void* const*>(device),
                         .num_bases = static_cast<int32_t>(2 * layers.size()),
                         .block_bytes = kv.block_bytes()},
                        reinterpret_cast<const BlockCopy*>(device + base_bytes), n, stream_.get()),
      "copy_blocks");
}

void CudaBackend::swap_out(const SwapPool&, const BlockCopy* pairs, int32_t n, int32_t urgent) {
  swapper_->out(pairs, n, urgent, stream_.get());
}

void CudaBackend::swap_in(const SwapPool&, const BlockCopy* pairs, int32_t n) {
  swapper_->in(pairs, n, stream_.get());
}

void CudaBackend::gather_tokens(const SlotTables& t, const StepBatch& batch) {
  forget_batch();
  auto* slots = static_cast<int32_t*>(
      token_slots_.get(static_cast<size_t>(batch.num_tokens) * sizeof(int32_t), stream_.get()));
  check(cuda::gather_tokens(device_slots(t),
                            {.rows = batch.rows,
                             .row_offsets = batch.row_offsets,
                             .ids = batch.ids,
                             .positions = batch.positions,
                             .token_rows = batch.token_rows,
                             .token_slots = slots,
                             .num_rows = batch.num_rows,
                             .num_tokens = batch.num_tokens},
                            launch()),
        "gather_tokens");
  token_slots_of_ = batch.rows;
}

void CudaBackend::embed(Tensor out, const Tensor& table, const int32_t* ids) {
  check(cuda::embed(half_, out.data, table_type(table.dtype), table.data,
                    static_cast<int32_t>(table.rows()), static_cast<int32_t>(table.cols()), ids,
                    out.rows(), launch()),
        "embed");
}

void CudaBackend::rms_norm(Tensor out, const Tensor& x, const float* weight, float eps) {
  check(cuda::rms_norm(half_, out.data, x.data, nullptr, weight, x.rows(),
                       static_cast<int32_t>(x.cols()), eps, launch()),
        "rms_norm");
}

void CudaBackend::add(Tensor inout, const Tensor& x) {
  check(cuda::add(half_, inout.data, x.data, x.size(), launch()), "add");
}

void CudaBackend::add_rms_norm(Tensor out, Tensor inout, const Tensor& x, const float* weight,
                               float eps) {
  check(cuda::rms_norm(half_, out.data, x.data, inout.data, weight, x.rows(),
                       static_cast<int32_t>(x.cols()), eps, launch()),
        "add_rms_norm");
}

void CudaBackend::silu_mul(Tensor out, const Tensor& gate_up) {
  check(cuda::gated_mul(half_, Gate::kSilu, out.data, gate_up.data, out.rows(),
                        static_cast<int32_t>(out.cols()), launch()),
        "silu_mul");
}

void CudaBackend::gather_rows(Tensor out, const Tensor& x, const int32_t* rows, int32_t n) {
  check(cuda::gather_rows(out.data, x.data, x.cols() * dtype_bytes(x.dtype), rows, n, launch()),
        "gather_rows");
}

void CudaBackend::linear(Tensor out, const Tensor& x, const PackedWeight& weight,
                         const float* bias) {
  multiply(LinearUse::kPlain, out, nullptr, x, weight, bias);
}

void CudaBackend::linear_add(Tensor inout, Tensor, const Tensor& x, const PackedWeight& weight,
                             const float* bias) {
  multiply(LinearUse::kAdd, inout, nullptr, x, weight, bias);
}

void CudaBackend::linear_gated(Tensor out, Tensor scratch, const Tensor& x,
                               const PackedWeight& weight, const float* bias) {
  multiply(LinearUse::kGated, out, &scratch, x, weight, bias);
}

void CudaBackend::multiply(LinearUse use, const Tensor& out, const Tensor* scratch, const Tensor& x,
                           const PackedWeight& weight, const float* bias) {
  gemm_->run(product(use, out, scratch, x, weight, bias), launch());
}

void CudaBackend::norm_linear(const NormArgs& norm, Tensor out, const PackedWeight& weight,
                              const float* bias) {
  multiply(LinearUse::kPlain, out, nullptr, norm, weight, bias);
}

void CudaBackend::norm_linear_gated(const NormArgs& norm, Tensor out, Tensor scratch,
                                    const PackedWeight& weight, const float* bias) {
  multiply(LinearUse::kGated, out, &scratch, norm, weight, bias);
}

void CudaBackend::multiply(LinearUse use, const Tensor& out, const Tensor* scratch,
                           const NormArgs& norm, const PackedWeight& weight, const float* bias) {
  if (norm.weight != nullptr) {
    rms_norm(norm.scratch, norm.x, norm.weight, norm.eps);
    return multiply(use, out, scratch, norm.scratch, weight, bias);
  }
  GemmArgs args = product(use, out, scratch, norm.x, weight, bias);
  args.norm_x = true;
  args.norm_eps = norm.eps;
  args.norm_scratch = norm.scratch.data;
  gemm_->run(args, launch());
}

GemmArgs CudaBackend::product(LinearUse use, const Tensor& out, const Tensor* scratch,
                              const Tensor& x, const PackedWeight& weight, const float* bias) {
  const bool gated = use == LinearUse::kGated;
  const int64_t outputs = gated ? weight.rows / 2 : weight.rows;
  if (x.cols() != weight.cols || out.cols() != outputs) {
    throw Error(ErrorCode::kUsage,
                format("linear of [%lld, %lld] got %lld inputs and %lld outputs",
                       static_cast<long long>(weight.rows), static_cast<long long>(weight.cols),
                       static_cast<long long>(x.cols()), static_cast<long long>(out.cols())));
  }
  return {.type = half_,
          .out = out.dtype == DType::kF32 ? GemmOut::kF32 : GemmOut::kHalf,
          .x = x.data,
          .x_stride = x.stride[0],
          .w = weight.plain,
          .y = out.data,
          .y_stride = out.stride[0],
          .bias = bias == nullptr ? nullptr : bias_of(weight, bias, out.dtype),
          .add_to_y = use == LinearUse::kAdd,
          .m = static_cast<int32_t>(x.rows()),
          .n = static_cast<int32_t>(outputs),
          .k = static_cast<int32_t>(weight.cols),
          .gated = gated,
          .scratch = scratch == nullptr ? nullptr : scratch->data};
}

// Op tests hand over no biases: theirs are made here.
const void* CudaBackend::bias_of(const PackedWeight& weight, const float* bias, DType result) {
  if (result == DType::kF32) return bias;
  const auto found = narrow_biases_.find(bias);
  if (found != narrow_biases_.end()) return found->second.get();
  take_bias(weight, bias);
  return narrow_biases_.at(bias).get();
}

}  // namespace inferd::cuda
