// Start-up: measures how to compute the model's products best for every number of rows that steps
// may have, with the model's own weights in turn, so that the second-level cache holds none.
#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "cuda/cuda_backend.h"
#include "cuda/gemm/gemm_codes.h"
#include "cuda/gemm/gemm_lt.h"
#include "cuda/rows/weights.h"

namespace inferd::cuda {
namespace {

// Device time for one number of rows of one weight; a product that takes longer is measured a few
// times all the same.
constexpr float kBudgetUs = 4000;
// All of it together; what is not measured by then is computed as GemmLt::run() says.
constexpr auto kMostTime = std::chrono::seconds(4);
constexpr int32_t kManyRows = 1024;
constexpr int32_t kCandidates = 10, kCandidatesOfMany = 8;

// Every step of gemm_row_step up to the one of `most`, the largest first: whole prompts and full
// batches matter most. Unused where the build has no cuBLASLt.
[[maybe_unused]] std::vector<int32_t> row_steps(int32_t most) {
  std::vector<int32_t> steps;
  for (int32_t m = 1; m <= most; m = gemm_row_step(m + 1)) steps.push_back(m);
  if (steps.back() < most) steps.push_back(gemm_row_step(most));
  std::reverse(steps.begin(), steps.end());
  return steps;
}

}  // namespace

void CudaBackend::tune_products(const StepShape& shape) {
#if INFERD_CUBLAS
  // Weights of one size, format and use are one problem. Those with a bias have kernels of their
  // own, which must be loaded before steps.
  using Problem = std::tuple<int64_t, int64_t, Epilogue, WeightFormat, bool>;
  const auto bias_of = [&](const CudaWeight* w) {
    const auto found = bias_of_weight_.find(w);
    return found == bias_of_weight_.end() ? nullptr : found->second;
  };
  std::map<Problem, std::vector<const CudaWeight*>> problems;
  int64_t widest_in = 0, widest_out = 0, gated_rows = 0;
  // Each rank measures by itself, and may find another way to be the best.
  std::set<std::pair<int64_t, int64_t>> alike;
  for (const CudaWeight* w : weights_) {
    if (w->alike && member_ != nullptr) alike.emplace(w->rows, w->cols);
  }
  for (const CudaWeight* w : weights_) {
    if (alike.contains({w->rows, w->cols})) continue;
    const bool fused = fused_epilogue(w->epilogue, w->gate);
    const Epilogue epilogue = fused ? w->epilogue : Epilogue::kStore;
    problems[{w->rows, w->cols, epilogue, w->format, bias_of(w) != nullptr}].push_back(w);
    // Rows with adapters want both halves ahead of the gate.
    if (epilogue == Epilogue::kGated && adapter_places_ > 0)
      problems[{w->rows, w->cols, Epilogue::kStore, w->format, bias_of(w) != nullptr}].push_back(w);
    widest_in = std::max(widest_in, w->cols);
    if (w->rows != shape.head_rows) widest_out = std::max(widest_out, w->rows);
    if (epilogue == Epilogue::kGated) gated_rows = std::max(gated_rows, w->rows);
  }
  const int64_t rows = gemm_row_step(std::max(shape.max_tokens, 1));
  const int64_t logit_rows = gemm_row_step(std::max(shape.max_logit_rows, 1));
  const int64_t y_bytes = std::max(rows * widest_out * 2, logit_rows * shape.vocab_size * 4);
  DeviceMemory x, y, scratch;
  try {
    x = allocate_device(static_cast<size_t>(rows * widest_in * 2));
    y = allocate_device(static_cast<size_t>(y_bytes));
    scratch = allocate_device(static_cast<size_t>(std::max<int64_t>(rows * gated_rows * 2, 1)));
    for (const CudaWeight* w : weights_)
      spare_of(*w, w->rows == shape.vocab_size ? logit_rows : rows);
  } catch (const Error&) {
    return;  // a full GPU does without
  }
  const Tensor any = Tensor::matrix(x.get(), info_.activation, rows, widest_in);
  check(fill_dummy_rows(any, {.first = 1, .step = widest_in}, stream_.get()), "tuning");
  const auto until = std::chrono::steady_clock::now() + kMostTime;
  for (const auto& [problem, owners] : problems) {
    const auto& [weight_rows, cols, epilogue, format, biased] = problem;
    const bool head = weight_rows == shape.head_rows, gated = epilogue == Epilogue::kGated;
    const int32_t most = head ? shape.max_logit_rows : shape.max_tokens;
    const int64_t outputs = gated ? weight_rows / 2 : weight_rows;
    std::vector<WeightView> kept;
    for (const CudaWeight* owner : owners) kept.push_back(owner->view());
    for (const int32_t m : row_steps(most)) {
      if (std::chrono::steady_clock::now() > until) return;
      const std::vector<WeightView> weights =
          widens(*owners[0], m) ? std::vector{widen(*owners[0])} : kept;
      const GemmArgs args{.type = half_,
                          .out = head ? GemmOut::kF32 : GemmOut::kHalf,
                          .x = x.get(),
                          .x_stride = cols,
                          .w = weights[0],
                          .y = y.get(),
                          .y_stride = outputs,
                          .bias = bias_of(owners[0]),
                          .add_to_y = epilogue == Epilogue::kAdd,
                          .m = m,
                          .n = static_cast<int32_t>(outputs),
                          .k = static_cast<int32_t>(cols),
                          .gated = gated,
                          .scratch = gated ? scratch.get() : nullptr,
                          .spare = {spare_.data(), spare_bytes(format, m, weight_rows, cols)}};
      gemm_->tune(args, weights, m > kManyRows ? kCandidatesOfMany : kCandidates, kBudgetUs,
                  launch());
    }
  }
#else
  (void)shape;
#endif
}

}  // namespace inferd::cuda
