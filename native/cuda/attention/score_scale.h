// How attention kernels turn a product q . k into the exponent of its softmax, 2^(log2 * s):
//
//   s = q . k                            plain
//   s = tanh(scale * q . k / softcap)    capped
#pragma once

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

}  // namespace inferd::cuda
