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
