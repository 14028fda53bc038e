// How many steps the largest of 32 activations is rounded to, over the vector face `Simd`. Included
// by kernels_<isa>.cpp in front of dot_*.h.
//
// 127 use all of a byte, but with some fewer the same values may fall nearer to whole steps. The
// squared error of 32 values swings by a sixth from one number of steps to the next, so that the
// best of sixteen has a fifth less than the first, for two or three operations a value more. That
// is what blocks of 16 would gain, which cost the products as much as a quarter of their speed.
#pragma once
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

// 127.45, 126.95, .. 119.95: the first one still rounds to 127.
constexpr int kTries = 16;
constexpr int kBlockVectors = kScaleBlock / kWidth;
struct Tries {
  float steps[kTries];
  float weights[kTries];  // 1 / steps^2

  constexpr Tries() : steps(), weights() {
    for (int i = 0; i < kTries; ++i) {
      steps[i] = 127.45f - 0.5f * static_cast<float>(i);
      weights[i] = 1.0f / (steps[i] * steps[i]);
    }
  }
};
alignas(64) constexpr Tries kTry;

// The steps of the first of the least errors; 127 where none is a number. By vectors: which one it
// is cannot be foretold, and comparing one after the other took most of the time of quantizing.
inline float steps_of_least(const float (&errors)[kTries]) {
  const V infinite = Simd::set(__builtin_inff());
  V negative[kTries / kWidth];  // less the errors that are no number
  V top = Simd::set(-__builtin_inff());
#pragma GCC unroll 4
  for (int i = 0; i < kTries / kWidth; ++i) {
    negative[i] = Simd::sub(Simd::zero(), Simd::min(Simd::load(errors + i * kWidth), infinite));
    top = Simd::max(negative[i], top);
  }
  const float most = Simd::largest(top);
  if (most == -__builtin_inff()) return 127.0f;
  V steps = Simd::zero();  // the first have the most steps
#pragma GCC unroll 4
  for (int i = 0; i < kTries / kWidth; ++i) {
    const V tried = Simd::load(kTry.steps + i * kWidth);
    steps = Simd::max(Simd::zero_where_less(tried, negative[i], most), steps);
  }
  return Simd::largest(steps);
}

// What each number of steps to `largest` misses the values of a block by, squared and summed.
inline void errors_of_steps(const V (&x)[kBlockVectors], float largest, float (&errors)[kTries]) {
  alignas(64) float inverses[kTries];
  for (int i = 0; i < kTries; i += kWidth)
    Simd::store(inverses + i, Simd::div(Simd::load(kTry.steps + i), Simd::set(largest)));
  for (int first = 0; first < kTries; first += kWidth) {
    V squares[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      const V inverse = Simd::set(inverses[first + i]);
      squares[i] = Simd::zero();
#pragma GCC unroll 8
      for (int v = 0; v < kBlockVectors; ++v) {
        const V wanted = Simd::mul(x[v], inverse);
        const V error = Simd::sub(wanted, Simd::round(wanted));
        squares[i] = Simd::fma(error, error, squares[i]);
      }
    }
    const V sums = Simd::sum_each(squares);
    Simd::store(errors + first, Simd::mul(sums, Simd::load(kTry.weights + first)));
  }
}

}  // namespace
}  // namespace inferd::cpu
