// The shared device header: vector loads, conversions, warp and block reductions, exact division.
// Kernel files take raw pointers and sizes, include CUDA headers, headers of this folder and
// nothing else; they know nothing of tensors or backends.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace inferd::cuda {

constexpr int kWarp = 32;
constexpr unsigned kFullWarp = 0xffffffffu;

// Eight 16-bit values moved as one 16-byte access. Pointers must be 16-byte aligned: rows are,
// since every width is a multiple of 8.
template <typename T>
struct alignas(16) Vec8 {
  T v[8];
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return __float2bfloat16_rn(x);
  }
}

template <typename T>
__device__ inline Vec8<T> load8(const T* p) {
  return *reinterpret_cast<const Vec8<T>*>(p);
}
template <typename T>
__device__ inline void store8(T* p, const Vec8<T>& v) {
  *reinterpret_cast<Vec8<T>*>(p) = v;
}

// Two floats rounded to a pair of 16-bit values in one register, `low` in the low half.
template <typename T>
__device__ inline uint32_t pack2(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 p = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(p);
  } else {
    const __nv_bfloat162 p = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(p);
  }
}

// And back.
template <typename T>
__device__ inline float2 unpack2(uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
  }
}

// 2^x by the special function unit: relative error 2^-22, subnormals flushed, 0 for -inf.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ScoreScale's s of a capped score: off by some 2^-22 of the cap.
__device__ inline float capped_score(float product, float cap_log2) {
  return 1.f - __fdividef(2.f, 1.f + fast_exp2(product * cap_log2));
}

__device__ inline float silu(float x) { return __fdividef(x, 1.f + __expf(-x)); }

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, step));
  return x;
}

// Sum over the block, the same bits in every thread. `scratch` holds one float a warp and is free
// again on return.
__device__ inline float block_sum(float x, float* scratch) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int warps = (blockDim.x + kWarp - 1) / kWarp;
  x = warp_sum(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  float total = lane < warps ? scratch[lane] : 0.f;
  total = warp_sum(total);
  __syncthreads();
  return total;
}

// Division by a divisor known on the host: one multiplication and a shift, exact for 0 <= n < 2^31
// (Granlund and Montgomery 1994, the round-up method).
struct Divisor {
  uint32_t value, multiplier, shift;

  __host__ static Divisor of(int32_t d) {
    const uint64_t divisor = static_cast<uint64_t>(d);
    uint32_t shift = 0;
    while ((uint64_t{1} << shift) < divisor) ++shift;
    const uint64_t m = ((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor)) / divisor + 1;
    return {static_cast<uint32_t>(d), static_cast<uint32_t>(m), shift};
  }
  __device__ int32_t divide(int32_t n) const {
    return static_cast<int32_t>(
        (__umulhi(multiplier, static_cast<uint32_t>(n)) + static_cast<uint32_t>(n)) >> shift);
  }
};

}  // namespace inferd::cuda
