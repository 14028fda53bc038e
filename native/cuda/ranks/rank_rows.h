// What a rank does with its part of rows besides collectives. Raw device pointers; see
// rank_rows.cu.
#pragma once
#include <cstdint>

#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"
#include "cuda/sampler/sampler.h"

namespace inferd::cuda {

// The largest logit of each row and its id, the lowest of equals; -inf where there is none.
struct BestToken {
  float logit;
  int32_t id;
};

// best[i] of logits [rows, count], of ids first_id, ..
cudaError_t best_tokens(BestToken* best, const float* logits, int64_t stride, int32_t count,
                        int32_t first_id, int32_t rows, const Launch& launch);

// The best of `all` [rows, ranks] of each row becomes its token, as of plain greedy rows.
cudaError_t take_best(const BestToken* all, int32_t ranks, const SampleParams& sample,
                      const Launch& launch);

// sums[i * sums_stride] = scale * the sum of squares of row i of x [rows, cols].
cudaError_t square_sums(Half type, float* sums, int64_t sums_stride, const void* x,
                        int64_t x_stride, int64_t rows, int32_t cols, float scale,
                        const Launch& launch);
// x[i][c] *= weight[c] / sqrt(sums[i * sums_stride] / over + eps)
cudaError_t scale_by_sums(Half type, void* x, int64_t x_stride, const float* sums,
                          int64_t sums_stride, int64_t rows, int32_t cols, int64_t over,
                          const float* weight, float eps, const Launch& launch);

}  // namespace inferd::cuda
