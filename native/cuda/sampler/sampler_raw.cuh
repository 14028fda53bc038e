// Raw log-probabilities of a row: the best entries, and the rank of one token. All parts call these
// with the same arguments, before the logits are edited.
#pragma once
#include "cuda/sampler/sampler.h"
#include "cuda/sampler/sampler_select.cuh"

namespace inferd::cuda::sampler {

// log of the sum of exp over a row; 0 when nothing is above -inf, so that log-probabilities stay
// -inf.
__device__ inline double log_total(float max, double total) {
  return max == minus_inf() ? 0. : static_cast<double>(max) + log(total);
}

__device__ inline float log_probability(float z, float max, double total) {
  return static_cast<float>(static_cast<double>(z) - log_total(max, total));
}

// Writes the `top` best entries of row `row`, ties by lower id. `mine`: the thread's best key.
__device__ inline void write_top(Shared& s, int& turn, const Slice& slice, uint64_t mine, float max,
                                 double total, int32_t top, int64_t row, const TokenOutputs& out) {
  int n = 0;
  if (top > 0) {
    const Everything all = {slice, max};
    const Filter none = {.max = max, .inverse_temperature = 1.f, .reach = -minus_inf()};
    const ByLogit order;
    const auto goal = static_cast<double>(top);
    Bound bound = locate<Weigh::kCount>(s, Own{none, mine}, order, 0, 0., goal);
    const auto up_to_bin = [&](const Entry& e) { return order.bin(e) <= bound.bin; };
    n = kListMax + 1;
    if (bound.found != 0) {
      n = gather(s, turn, all, order, up_to_bin);
    } else {
      parts_sync();
    }
    if (n > kListMax) {
      bound = locate<Weigh::kCount>(s, all, order, 0, 0., goal);
      const uint64_t last = last_key<Weigh::kCount>(s, turn, all, order, 0, bound);
      n = gather(s, turn, all, order, [&](const Entry& e) { return e.key() >= last; });
    }
  }
  if (part_rank() != 0) return;
  if (top > 0) {
    sort_list(s, n);
    if (threadIdx.x < top) {
      const uint64_t key = s.keys[threadIdx.x];
      out.top_ids[row * kMaxTopLogprobs + threadIdx.x] = id_of(key);
      out.top_logprobs[row * kMaxTopLogprobs + threadIdx.x] =
          log_probability(logit_of(key), max, total);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) out.top_counts[row] = top;
}

// 1 + entries of the unedited logits `row` that are better than `token`, ties by lower id. `logit`
// is the token's, clean.
__device__ inline int32_t rank_of(Shared& s, int& turn, const Slice& slice, const float* row,
                                  int32_t token, float logit) {
  uint64_t better = 0;
#pragma unroll 8
  for (int i = threadIdx.x; i < slice.count; i += kThreads) {
    const int32_t id = slice.begin + i;
    const float z = __ldcg(row + id);
    if (id < token ? z >= logit : id > token && z > logit) ++better;
  }
  return static_cast<int32_t>(1 + count_of_parts(s, turn, better));
}

}  // namespace inferd::cuda::sampler
