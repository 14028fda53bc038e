// Start-up: measures how to compute the model's products best for every number of rows that steps
// may have, with the model's own weights in turn, so that the second-level cache holds none.
#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "cuda/cuda_backend.h"
#include "cuda/gemm_lt.h"
#include "cuda/weights.h"

namespace inferd::cuda {
namespace {

// Device time for one number of rows of one weight; a product that takes longer is measured a few
// times all the same.
constexpr float kBudgetUs = 4000;
// All of it together; what is not measured by then takes the first proposal of cuBLASLt.
constexpr auto kMostTime = std::chrono::seconds(4);
constexpr int32_t kManyRows = 1024;
constexpr int32_t kCandidates = 10, kCandidatesOfMany = 8;

// Unused where the build has no cuBLASLt.
// Every step of gemm_row_step up to the one of `most`, then less and less likely ones.
[[maybe_unused]] std::vector<int32_t> row_steps(int32_t most) {
  std::vector<int32_t> steps;
  for (int32_t m = 1; m <= most; m = gemm_row_step(m + 1)) steps.push_back(m);
  if (steps.back() < most) steps.push_back(gemm_row_step(most));
  // The largest first: whole prompts and full batches matter most.
  std::reverse(steps.begin(), steps.end());
  return steps;
}

}  // namespace

void CudaBackend::tune_products(const StepShape& shape) {
#if INFERD_CUBLAS
  int64_t widest_in = 0, widest_out = 0;
  for (const auto& [size, weights] : weights_) {
    widest_in = std::max(widest_in, size.second);
    widest_out = std::max(widest_out, size.first == shape.vocab_size ? 0 : size.first);
  }
  const int64_t rows = gemm_row_step(std::max(shape.max_tokens, 1));
  const int64_t logit_rows = gemm_row_step(std::max(shape.max_logit_rows, 1));
  const int64_t y_bytes = std::max(rows * widest_out * 2, logit_rows * shape.vocab_size * 4);
  DeviceMemory x, y;
  try {
    x = allocate_device(static_cast<size_t>(rows * widest_in * 2));
    y = allocate_device(static_cast<size_t>(y_bytes));
  } catch (const Error&) {
    return;  // a full GPU does without
  }
  check(fill_dummy_rows(x.get(), info_.activation, rows * widest_in, 1, stream_.get()), "tuning");
  const auto until = std::chrono::steady_clock::now() + kMostTime;
  for (const auto& [size, weights] : weights_) {
    const bool head = size.first == shape.vocab_size;
    const int32_t most = head ? shape.max_logit_rows : shape.max_tokens;
    for (const int32_t m : row_steps(most)) {
      if (std::chrono::steady_clock::now() > until) return;
      const GemmArgs args{.type = half_,
                          .out = head ? GemmOut::kF32 : GemmOut::kHalf,
                          .x = x.get(),
                          .x_stride = size.second,
                          .w = weights[0],
                          .y = y.get(),
                          .y_stride = size.first,
                          .bias = nullptr,
                          .add_to_y = false,
                          .m = m,
                          .n = static_cast<int32_t>(size.first),
                          .k = static_cast<int32_t>(size.second)};
      gemm_->tune(args, weights, m > kManyRows ? kCandidatesOfMany : kCandidates, kBudgetUs,
                  launch());
    }
  }
#else
  (void)shape;
#endif
}

}  // namespace inferd::cuda
