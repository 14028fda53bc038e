// How attention kernels turn a product q . k into the exponent of its softmax, 2^(log2 * s):
//
//   s = q . k                            plain
//   s = tanh(scale * q . k / softcap)    capped
#pragma once
#include <cstdint>

namespace inferd::cuda {

struct ScoreScale {
  float log2;
  float cap_log2;  // capped: s = 1 - 2 / (1 + 2^(cap_log2 * q . k)); 0: plain

  static ScoreScale of(float scale, float softcap) {
    constexpr float kLog2e = 1.44269504088896f;
    if (softcap <= 0.f) return {scale * kLog2e, 0.f};
    return {softcap * kLog2e, 2.f * scale / softcap * kLog2e};
  }
};

#if defined(__CUDACC__)
// The denominator of a softmax whose keys add up to `total` in units of 2^(log2 * top), with the
// head's sink: one more score (AttentionArgs::sinks), of which null has none. A sink far above all
// scores leaves nothing of them, as it should.
__device__ inline float sunk_total(float total, float top, float log2, const float* sinks,
                                   int32_t head) {
  if (sinks == nullptr) return total;
  return total + exp2f(fmaf(sinks[head], 1.44269504088896f, -top * log2));
}
#endif

}  // namespace inferd::cuda
