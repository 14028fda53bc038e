// What a part of the keys leaves behind for the kernel that puts parts together: of each group of
// 16 heads of a token sums of p v [16, value_dim], then the largest scores [16] and the sums of p
// [16], part behind part. Device code of this folder.
#pragma once
#include "cuda/latent/latent_attention.h"

namespace inferd::cuda {

constexpr int kPartHeads = 16;

__host__ __device__ constexpr int64_t partial_floats(int value_dim) {
  return int64_t{kPartHeads} * (value_dim + 2);
}

// Of one head, of the part that blockIdx.y numbers.
struct LatentPartial {
  float *values, *largest, *sum;

  __device__ LatentPartial(const LatentAttentionParams& p, int token, int head, int value_dim) {
    const int groups = (p.heads + kPartHeads - 1) / kPartHeads, row = head % kPartHeads;
    const int64_t group = static_cast<int64_t>(token) * groups + head / kPartHeads;
    float* of = p.partials + (group * p.splits + blockIdx.y) * partial_floats(value_dim);
    values = of + row * value_dim;
    largest = of + kPartHeads * value_dim + row;
    sum = largest + kPartHeads;
  }
};

}  // namespace inferd::cuda
