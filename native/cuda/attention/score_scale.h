// How attention kernels turn a product q . k into the exponent of its softmax, 2^(log2 * s):
//
//   s = q . k                            plain
//   s = tanh(scale * q . k / softcap)    capped
//
// and what the values are multiplied by behind it.
#pragma once
#include <cstdint>

namespace inferd::cuda {

struct ScoreScale {
  float log2;
  float cap_log2;   // capped: s = 1 - 2 / (1 + 2^(cap_log2 * q . k)); 0: plain
  float per_value;  // 1 / what values are multiplied by

  static ScoreScale of(float scale, float softcap, float value_scale) {
    constexpr float kLog2e = 1.44269504088896f;
    if (softcap <= 0.f) return {scale * kLog2e, 0.f, 1.f / value_scale};
    return {softcap * kLog2e, 2.f * scale / softcap * kLog2e, 1.f / value_scale};
  }
};

#if defined(__CUDACC__)
// What sums of values are divided by: the denominator of a softmax whose keys add up to `total` in
// units of 2^(log2 * top), over what values are multiplied by. With the head's sink: one more score
// (AttentionArgs::sinks), of which null has none. A sink far above all scores leaves nothing of
// them, as it should.
__device__ inline float sunk_total(float total, float top, const ScoreScale& scale,
                                   const float* sinks, int32_t head) {
  if (sinks != nullptr) total += exp2f(fmaf(sinks[head], 1.44269504088896f, -top * scale.log2));
  return total * scale.per_value;
}
#endif

}  // namespace inferd::cuda
