// Ops on rows of activations, and the plan on the slot tables. Inside run_step, on its thread.
#include <cstring>
#include <utility>

#include "core/error.h"
#include "cuda/cuda_backend.h"
#include "cuda/gemm/gemm.h"
#include "cuda/gemm/gemm_codes.h"
#include "cuda/rows/activation.h"
#include "cuda/rows/coded_weights.h"
#include "cuda/rows/embedding.h"
#include "cuda/rows/norm.h"
#include "cuda/rows/row_sums.h"
#include "cuda/rows/weights.h"
#include "cuda/runtime/block_copy.h"
#include "cuda/sampler/network_drafts.h"
#include "cuda/sampler/slots.h"

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

// Of two matrices by rows, packed or parts of wider rows.
bool overlap(const Tensor& a, const Tensor& b) {
  const auto end = [](const Tensor& t) {
    return t.as<const std::byte>() + t.rows() * t.stride[0] * dtype_bytes(t.dtype);
  };
  return a.as<const std::byte>() < end(b) && b.as<const std::byte>() < end(a);
}

}  // namespace

DeviceSlots device_slots(const SlotTables& t) {
  DeviceSlots slots = {.tokens = t.tokens,
                       .lengths = t.lengths,
                       .prompt_lens = t.prompt_lens,
                       .blocks = t.blocks,
                       .sampling = t.sampling,
                       .lists = {},
                       .masks = t.masks,
                       .num_drafts = t.num_drafts,
                       .forced_steps = t.forced_steps,
                       .forced_rate = t.forced_rate,
                       .max_slots = t.max_slots,
                       .max_len = t.max_len,
                       .max_blocks = t.max_blocks,
                       .mask_words = t.mask_words,
                       .max_sample = t.max_sample};
  std::copy(std::begin(t.lists), std::end(t.lists), slots.lists);
  return slots;
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

// The kernel takes arrays with blocks of one size: a launch for each run of them.
void CudaBackend::copy_blocks(std::span<const BlockArray> arrays, const BlockCopy* pairs,
                              int32_t n) {
  if (arrays.empty() || n == 0) return;
  const size_t base_bytes = arrays.size() * sizeof(void*);
  const size_t pair_bytes = static_cast<size_t>(n) * sizeof(BlockCopy);
  auto* staged = current_->staging.take<std::byte>(base_bytes + pair_bytes);
  auto** bases = reinterpret_cast<void**>(staged);
  for (const BlockArray& array : arrays) *bases++ = array.base;
  std::memcpy(staged + base_bytes, pairs, pair_bytes);
  auto* device = static_cast<std::byte*>(block_copies_.get(base_bytes + pair_bytes, stream_.get()));
  copy_in(device, staged, base_bytes + pair_bytes);
  for (size_t first = 0, end = 0; first < arrays.size(); first = end) {
    const int64_t bytes = arrays[first].block_bytes;
    while (end < arrays.size() && arrays[end].block_bytes == bytes) ++end;
    check(cuda::copy_blocks({.bases = reinterpret_cast<void* const*>(device) + first,
                             .num_bases = static_cast<int32_t>(end - first),
                             .block_bytes = bytes},
                            reinterpret_cast<const BlockCopy*>(device + base_bytes), n,
                            stream_.get()),
          "copy_blocks");
  }
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

void CudaBackend::gather_next(const SlotTables& t, const StepBatch& batch, int32_t* ids) {
  check(next_tokens({.rows = batch.rows,
                     .positions = batch.positions,
                     .token_rows = batch.token_rows,
                     .ids = ids,
                     .count = batch.num_tokens,
                     .slots = device_slots(t)},
                    launch()),
        "gather_next");
}

void CudaBackend::gather_drafts(const SlotTables& t, const StepBatch& batch, int32_t ahead,
                                int32_t lag) {
  forget_batch();
  auto* slots = static_cast<int32_t*>(
      token_slots_.get(static_cast<size_t>(batch.num_tokens) * sizeof(int32_t), stream_.get()));
  check(draft_tokens({.rows = batch.rows,
                      .ahead = ahead,
                      .lag = lag,
                      .count = batch.num_tokens,
                      .ids = batch.ids,
                      .positions = batch.positions,
                      .token_rows = batch.token_rows,
                      .token_slots = slots,
                      .slots = device_slots(t)},
                     launch()),
        "gather_drafts");
  token_slots_of_ = batch.rows;
}

void CudaBackend::pick_drafting(const SlotTables& t, const DraftRow* rows, int32_t n,
                                const int32_t* positions, int32_t* picks) {
  check(cuda::pick_drafting({.rows = rows,
                             .positions = positions,
                             .picks = picks,
                             .count = n,
                             .slots = device_slots(t)},
                            launch()),
        "pick_drafting");
}

void CudaBackend::copy_rows(Tensor out, const Tensor& x) {
  const auto bytes = [](const Tensor& m, int64_t values) {
    return static_cast<size_t>(values * dtype_bytes(m.dtype));
  };
  if (x.rows() == 0) return;
  finish_sum();
  check(cudaMemcpy2DAsync(out.data, bytes(out, out.stride[0]), x.data, bytes(x, x.stride[0]),
                          bytes(x, x.cols()), static_cast<size_t>(x.rows()),
                          cudaMemcpyDeviceToDevice, stream_.get()),
        "copy_rows");
}

void CudaBackend::embed(Tensor out, const Tensor& table, int32_t first_id, const int32_t* ids,
                        float scale) {
  check(cuda::embed(half_, out.data, table_type(table.dtype), table.data,
                    static_cast<int32_t>(table.rows()), static_cast<int32_t>(table.cols()), ids,
                    out.rows(), scale, launch(), first_id),
        "embed");
}

void CudaBackend::embed_weight(Tensor out, const PackedWeight& table, int32_t first_id,
                               const int32_t* ids, float scale) {
  const auto& weight = static_cast<const CudaWeight&>(table);
  if (!weight.format.scaled) {
    const Tensor rows =
        Tensor::matrix(weight.memory.get(), weight.dtype(), weight.rows, weight.cols);
    return embed(out, rows, first_id, ids, scale);
  }
  const CodedTable codes{.layout = weight.layout(),
                         .tiles = weight.memory.get(),
                         .remainders = weight.remainders.get()};
  check(embed_codes(half_, out.data, codes, ids, out.rows(), scale, launch(), first_id),
        "embed_weight");
}

void CudaBackend::rms_norm(Tensor out, const Tensor& x, const float* weight, float eps) {
  check(rms_norm_rows(half_, out.data, out.stride[0], x.data, x.stride[0], weight, x.rows(),
                      static_cast<int32_t>(x.cols()), eps, launch()),
        "rms_norm");
}

void CudaBackend::add(Tensor inout, const Tensor& x, float scale) {
  check(cuda::add(half_, inout.data, x.data, x.size(), scale, launch()), "add");
}

void CudaBackend::add_rms_norm(Tensor out, Tensor inout, const Tensor& x, const float* weight,
                               float eps) {
  check(cuda::rms_norm(half_, out.data, x.data, inout.data, weight, x.rows(),
                       static_cast<int32_t>(x.cols()), eps, launch()),
        "add_rms_norm");
}

void CudaBackend::gated_mul(Tensor out, const Tensor& gate_up, Gate gate) {
  check(cuda::gated_mul(half_, gate, out.data, gate_up.data, out.rows(),
                        static_cast<int32_t>(out.cols()), launch()),
        "gated_mul");
}

void CudaBackend::cap_logits(Tensor logits, float scale, float cap) {
  check(cuda::cap_logits(logits.as<float>(), logits.size(), scale, cap, launch()), "cap_logits");
}

void CudaBackend::gather_rows(Tensor out, const Tensor& x, const int32_t* rows, int32_t n) {
  check(cuda::gather_rows(out.data, x.data, x.cols() * dtype_bytes(x.dtype), rows, n, launch()),
        "gather_rows");
}

void CudaBackend::sum_rows(Tensor sums, const Tensor& x, const RowSum* entries, int32_t n) {
  check(cuda::sum_rows(half_,
                       {.sums = sums.as<float>(),
                        .x = x.data,
                        .hidden = static_cast<int32_t>(x.cols()),
                        .entries = reinterpret_cast<const int32_t*>(entries),  // four words each
                        .count = n},
                       launch()),
        "sum_rows");
}

void CudaBackend::linear(const LinearArgs& args) {
  if (shared_.has_value()) {
    if (multiply_shares(args)) return;
    const auto touches = [&](const Tensor& t) { return overlap(t, shared_->whole); };
    if (!shared_->added || touches(args.x) || touches(args.out)) join_shares();
  }
  // Rows whose sum is complete go ahead of those that are on their way.
  if (sent_.has_value() && sent_->whole == args.x.data && sent_->first < args.x.rows() &&
      args.adapters == nullptr) {
    const SentRows sent = *std::exchange(sent_, std::nullopt);
    multiply_rows(args, 0, sent.first);
    add_sent(sent);
    multiply_rows(args, sent.first, args.x.rows() - sent.first);
    return;
  }
  finish_sent();
  if (args.bank != nullptr) return multiply_adapted(args);
  multiply(args);
}

void CudaBackend::multiply_rows(const LinearArgs& args, int64_t first, int64_t count) {
  LinearArgs part = args;
  for (Tensor* t : {&part.out, &part.x, &part.scratch}) *t = some_rows(*t, first, count);
  NormArgs norm;
  if (args.norm != nullptr) {
    norm = *args.norm;
    norm.scratch = some_rows(norm.scratch, first, count);
    part.norm = &norm;
  }
  multiply(part);
}

void CudaBackend::multiply(const LinearArgs& given) {
  LinearArgs args = given;
  const bool fused = fused_epilogue(args.epilogue, args.gate);
  if (!fused) {
    args.out = given.scratch;
    args.epilogue = Epilogue::kStore;
  }
  const NormArgs* norm = args.norm;
  // Products by codes take the weight of the norm in, which is not folded into them.
  if (norm != nullptr && norm->weight != nullptr && !args.weight->format.scaled) {
    const Tensor& normed = norm->scratch;
    check(rms_norm_rows(half_, normed.data, normed.stride[0], args.x.data, args.x.stride[0],
                        norm->weight, args.x.rows(), static_cast<int32_t>(args.x.cols()), norm->eps,
                        own_launch()),
          "rms_norm");
    args.x = normed;
    norm = nullptr;
  }
  GemmArgs gemm = product(args);
  if (norm != nullptr) {
    gemm.norm_x = true;
    gemm.norm_eps = norm->eps;
    gemm.norm_weight = norm->weight;
    gemm.norm_scratch = norm->scratch.data;
  }
  // Not early after widening: products fetch weights, which a kernel has just written, before they
  // wait.
  const bool widened = gemm.w.codes == widened_.data();
  gemm_->run(gemm, widened ? Launch(stream_.get()) : own_launch());
  if (fused) return;
  check(cuda::gated_mul(half_, given.gate, given.out.data, args.out.data, given.out.rows(),
                        static_cast<int32_t>(given.out.cols()), own_launch()),
        "gated_mul");
}

// On an H200 a product by codes of so many rows takes as long as widening and one of 16 bits.
bool CudaBackend::widens(const CudaWeight& weight, int64_t rows) const {
  constexpr int64_t kFrom = 769, kFromBeforeHopper = 65;
  constexpr int64_t kMostBytes = int64_t{1} << 30;  // of the widened weight
  return weight.coded() && weight.cols % 8 == 0 &&
         rows >= (major_ >= 9 ? kFrom : kFromBeforeHopper) &&
         weight.rows * weight.cols * 2 <= kMostBytes;
}

WeightView CudaBackend::widen(const CudaWeight& weight) {
  void* wide = widened_.get(static_cast<size_t>(weight.rows * weight.cols * 2), stream_.get());
  check(widen_codes(half_, weight.layout(), weight.memory.get(), wide, stream_.get()),
        "widening a weight");
  return {.format = half_ == Half::kF16 ? kFormatF16 : kFormatBF16, .codes = wide};
}

GemmArgs CudaBackend::product(const LinearArgs& a) {
  const auto& weight = static_cast<const CudaWeight&>(*a.weight);
  const bool gated = a.epilogue == Epilogue::kGated;
  const int64_t outputs = gated ? weight.rows / 2 : weight.rows;
  if (a.x.cols() != weight.cols || a.out.cols() != outputs) {
    throw Error(ErrorCode::kUsage,
                format("linear of [%lld, %lld] got %lld inputs and %lld outputs",
                       static_cast<long long>(weight.rows), static_cast<long long>(weight.cols),
                       static_cast<long long>(a.x.cols()), static_cast<long long>(a.out.cols())));
  }
  return {.type = half_,
          .out = a.out.dtype == DType::kF32 ? GemmOut::kF32 : GemmOut::kHalf,
          .x = a.x.data,
          .x_stride = a.x.stride[0],
          .w = widens(weight, a.x.rows()) ? widen(weight) : weight.view(),
          .y = a.out.data,
          .y_stride = a.out.stride[0],
          .bias = a.bias == nullptr ? nullptr : bias_of(weight, a.bias, a.out.dtype),
          .add_to_y = a.epilogue == Epilogue::kAdd,
          .m = static_cast<int32_t>(a.x.rows()),
          .n = static_cast<int32_t>(outputs),
          .k = static_cast<int32_t>(weight.cols),
          .gated = gated,
          .scratch = gated ? a.scratch.data : nullptr,
          .spare = spare_of(weight, a.x.rows())};
}

GemmSpare CudaBackend::spare_of(const CudaWeight& weight, int64_t rows) {
  const size_t bytes = spare_bytes(weight.format, rows, weight.rows, weight.cols);
  return {bytes == 0 ? nullptr : spare_.get(bytes, stream_.get()), bytes};
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
