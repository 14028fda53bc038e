// Scales and minima of codes as they are kept (coded_layout.h), and what that leaves of them.
#pragma once
#include "cuda/device/common.cuh"
#include "cuda/rows/coded_layout.h"

namespace inferd::cuda {

template <typename T>
__device__ T stored_scale(float scale) {
  constexpr float kMost = 65504.f;
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(fminf(fmaxf(scale, -kMost), kMost));
  } else {
    return from_float<T>(to_float(from_float<T>(scale)) * kCodedScale);
  }
}
template <typename T>
__device__ T stored_min(float min) {
  constexpr float kMost = 65504.f;
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(fminf(fmaxf(min, -kMost), kMost));
  } else {
    return from_float<T>(min / kCodedUnit);
  }
}

// The nearest number of 16 bits, and that on the other side.
inline __device__ float2 neighbours(float x, __half*) {
  x = fminf(fmaxf(x, -65504.f), 65504.f);
  const float nearest = to_float(__float2half_rn(x));
  return {nearest, to_float(nearest > x ? __float2half_rd(x) : __float2half_ru(x))};
}
inline __device__ float2 neighbours(float x, __nv_bfloat16*) {
  const float nearest = to_float(__float2bfloat16_rn(x));
  return {nearest, to_float(nearest > x ? __float2bfloat16_rd(x) : __float2bfloat16_ru(x))};
}

// A scale and a minimum in 16 bits by which the numbers s u + m of `count` codes move least, in
// squares: of each the nearest or its neighbour, because the nearest of both may move all of a
// group alike. A scale that 16 bits hold stays, and its minimum is the nearest. In a random model
// of K types (quant-gguf-k, emulated in float32, its table exact) the logits are off by 6.8e-5 of
// their square, by the nearest 1.2e-4; on an H200, in bf16, by 1.7e-4 and 2.4e-4.
template <typename T>
__device__ float2 rounded_together(float2 of, const uint8_t* codes, int count) {
  float sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) {
    const float u = codes[i];
    sum += u;
    squares += u * u;
  }
  const float2 scales = neighbours(of.x, static_cast<T*>(nullptr));
  const float2 mins = neighbours(of.y, static_cast<T*>(nullptr));
  float2 best = of;
  float least = INFINITY;
  for (int i = 0; i < 4; ++i) {
    const float2 kept = {i % 2 == 0 ? scales.x : scales.y, i / 2 == 0 ? mins.x : mins.y};
    const float s = kept.x - of.x, m = kept.y - of.y;
    const float moved = s * s * squares + 2 * s * m * sum + m * m * static_cast<float>(count);
    if (moved < least) {
      least = moved;
      best = kept;
    }
  }
  return best;
}

// As numbers.
template <typename T>
__device__ float read_scale(const T* stored) {
  return std::is_same_v<T, __half> ? to_float(*stored) : to_float(*stored) * (1 / kCodedScale);
}
template <typename T>
__device__ float read_min(const T* stored) {
  return std::is_same_v<T, __half> ? to_float(*stored) : to_float(*stored) * kCodedUnit;
}

// What is left of a scale and a minimum, in bf16 whatever their type: so they have 16 bits of
// mantissa together. Of weights whose rows are looked up, [rows][groups of columns].
inline __device__ __nv_bfloat162 scale_remainder(float2 of, float2 kept) {
  return __floats2bfloat162_rn(of.x - kept.x, of.y - kept.y);
}

inline __device__ int64_t remainders_of_row(const CodedLayout& layout) {
  return (layout.cols + layout.group - 1) / layout.group;
}

}  // namespace inferd::cuda
