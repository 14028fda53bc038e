// 8-bit weights as the tensor cores of 16-bit numbers take them: four codes of a word become two
// pairs, of codes 0 and 2 and of codes 1 and 3, in a few instructions a word. Products whose
// columns come in that order take the other side in the same: even_pair() and odd_pair().
#pragma once
#include "core/weight_format.h"
#include "cuda/device/common.cuh"

namespace inferd::cuda {

// The same arithmetic on a pair of 16-bit numbers in one register. The product has 0 added, so that
// it is one of the instructions of every generation.
template <typename T>
__device__ inline uint32_t multiply_pair(uint32_t a, uint32_t b) {
  uint32_t product;
  if constexpr (std::is_same_v<T, __half>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0));
  }
  return product;
}
template <typename T>
__device__ inline uint32_t subtract_pair(uint32_t a, uint32_t b) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 p =
        __hsub2(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
    return reinterpret_cast<const uint32_t&>(p);
  } else {
    const __nv_bfloat162 p = __hsub2(reinterpret_cast<const __nv_bfloat162&>(a),
                                     reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const uint32_t&>(p);
  }
}

// e4m3: moved into the wider type, exponent and mantissa are those of the number over a power of
// two, which one exact product brings back; subnormal numbers too. NaN comes out as 480.
template <typename T>
__device__ inline uint32_t float8_pair(uint32_t high_bytes) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  constexpr int kShift = kHalf ? 1 : 4;
  constexpr uint32_t kScale = kHalf ? 0x5c005c00u : 0x7b807b80u;  // 2^8, 2^120
  const uint32_t moved = (high_bytes & 0x80008000u) | ((high_bytes & 0x7f007f00u) >> kShift);
  return multiply_pair<T>(moved, kScale);
}

// Signed integers: the low bits of a number with a unit in the last place of 1, less what was added
// so. Exact.
template <typename T>
__device__ inline uint32_t int8_pair(uint32_t low_bytes) {
  if constexpr (std::is_same_v<T, __half>) {
    return subtract_pair<T>((low_bytes & 0x00ff00ffu) ^ 0x64806480u, 0x64806480u);
  } else {
    return subtract_pair<T>((low_bytes & 0x007f007fu) | 0x43004300u,
                            (low_bytes & 0x00800080u) | 0x43004300u);
  }
}

// Codes 0 and 2 of a word, and 1 and 3.
template <typename T, CodeType kCodes>
__device__ inline void widen4(uint32_t word, uint32_t& even, uint32_t& odd) {
  static_assert(kCodes == CodeType::kFloat8 || kCodes == CodeType::kInt8);
  if constexpr (kCodes == CodeType::kFloat8) {
    even = float8_pair<T>(word << 8);
    odd = float8_pair<T>(word);
  } else {
    even = int8_pair<T>(word);
    odd = int8_pair<T>(word >> 8);
  }
}
// The same of four 16-bit numbers in two words.
__device__ inline uint32_t even_pair(uint32_t low, uint32_t high) {
  return __byte_perm(low, high, 0x5410);
}
__device__ inline uint32_t odd_pair(uint32_t low, uint32_t high) {
  return __byte_perm(low, high, 0x7632);
}

}  // namespace inferd::cuda
