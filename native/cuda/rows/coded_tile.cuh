// The codes of a tile (coded_layout.h) as operands of tensor cores.
#pragma once
#include "cuda/device/common.cuh"
#include "cuda/rows/coded_layout.h"

namespace inferd::cuda {

// a b + c of pairs, rounded once.
template <typename T>
__device__ inline uint32_t fma_pair(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  if constexpr (std::is_same_v<T, __half>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}

// What sums of products are multiplied by.
template <typename T>
constexpr float coded_unit = std::is_same_v<T, __half> ? 1.f : kCodedUnit;

// Scales and minima of rows g and g + 8 in one group of columns, each twice in a word.
template <typename T, int kBits>
struct CodedScales {
  static constexpr bool kF16 = std::is_same_v<T, __half>;
  uint32_t scale[2];
  uint32_t sixteenth[2];  // of the scale: of codes that are taken four bits up, as 16 u
  uint32_t min[2];

  // `entry`: of this g, in shared or device memory.
  __device__ void load(const uint8_t* entry, bool minima) {
    if (minima) {
      load<true>(entry);
    } else {
      load<false>(entry);
    }
  }
  template <bool kMinima>
  __device__ void load(const uint8_t* entry) {
    if constexpr (kMinima) {
      take<true>(*reinterpret_cast<const uint2*>(entry));
    } else {
      take<false>({*reinterpret_cast<const uint32_t*>(entry), 0});
    }
  }
  template <bool kMinima>
  __device__ void take(const uint2& words) {
    constexpr uint32_t kNegativeZeros = 0x80008000u;
    scale[0] = __byte_perm(words.x, 0, 0x1010);
    scale[1] = __byte_perm(words.x, 0, 0x3232);
    if constexpr (kMinima) {
      min[0] = __byte_perm(words.y, 0, 0x1010);
      min[1] = __byte_perm(words.y, 0, 0x3232);
    } else {
      // -8 and -128 (f16); times 2^-133 (bf16), which are numbers without the leading one.
      constexpr uint32_t kMiddle = kF16 ? (kBits == 4 ? 0xc800c800u : 0xd800d800u)
                                        : (kBits == 4 ? 0x80088008u : 0x80808080u);
      min[0] = fma_pair<T>(scale[0], kMiddle, kNegativeZeros);
      min[1] = fma_pair<T>(scale[1], kMiddle, kNegativeZeros);
    }
    if constexpr (kBits == 4 && !kF16) {
      constexpr uint32_t kSixteenth = 0x3d803d80u;
      sixteenth[0] = fma_pair<T>(scale[0], kSixteenth, kNegativeZeros);
      sixteenth[1] = fma_pair<T>(scale[1], kSixteenth, kNegativeZeros);
    }
  }
};

// The four registers of A of one step of 16 columns, from its word (4 bits).
template <typename T>
__device__ inline void unpack_step(uint32_t word, const CodedScales<T, 4>& s, uint32_t (&a)[4]) {
  constexpr uint32_t kLow = 0x000f000fu, kHigh = 0x00f000f0u;
  const uint32_t next = word >> 8;
  if constexpr (std::is_same_v<T, __half>) {
    // 1024 + u and 1024 + 16 u
    constexpr uint32_t kMagic = 0x64006400u, kOne = 0x3c003c00u, kSixteenth = 0x2c002c00u;
    constexpr uint32_t kLess1024 = 0xe400e400u, kLess64 = 0xd400d400u;
    const auto low = [&](uint32_t w) { return fma_pair<T>((w & kLow) | kMagic, kOne, kLess1024); };
    const auto high = [&](uint32_t w) {
      return fma_pair<T>((w & kHigh) | kMagic, kSixteenth, kLess64);
    };
    a[0] = fma_pair<T>(low(word), s.scale[0], s.min[0]);
    a[1] = fma_pair<T>(low(next), s.scale[1], s.min[1]);
    a[2] = fma_pair<T>(high(word), s.scale[0], s.min[0]);
    a[3] = fma_pair<T>(high(next), s.scale[1], s.min[1]);
  } else {
    a[0] = fma_pair<T>(word & kLow, s.scale[0], s.min[0]);
    a[1] = fma_pair<T>(next & kLow, s.scale[1], s.min[1]);
    a[2] = fma_pair<T>(word & kHigh, s.sixteenth[0], s.min[0]);
    a[3] = fma_pair<T>(next & kHigh, s.sixteenth[1], s.min[1]);
  }
}

// The same from two words (8 bits).
template <typename T>
__device__ inline void unpack_step(uint32_t first, uint32_t second, const CodedScales<T, 8>& s,
                                   uint32_t (&a)[4]) {
  const auto pair = [&](uint32_t word, uint32_t bytes) {
    if constexpr (std::is_same_v<T, __half>) {  // 1024 + u
      return fma_pair<T>(__byte_perm(word, 0x64646464u, bytes), 0x3c003c00u, 0xe400e400u);
    } else {
      return __byte_perm(word, 0, bytes);
    }
  };
  a[0] = fma_pair<T>(pair(first, 0x4140), s.scale[0], s.min[0]);
  a[1] = fma_pair<T>(pair(second, 0x4140), s.scale[1], s.min[1]);
  a[2] = fma_pair<T>(pair(first, 0x4342), s.scale[0], s.min[0]);
  a[3] = fma_pair<T>(pair(second, 0x4342), s.scale[1], s.min[1]);
}

// Scales of e2m1 of rows g and g + 8 in one group of columns, each twice in a word.
template <typename T>
struct Float4Scales {
  uint32_t scale[2];

  // From the two bytes of this g.
  __device__ void take(uint32_t entry) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint32_t exponent = entry >> (8 * row) & 0xffu;
      if constexpr (std::is_same_v<T, __half>) {
        const __half2 twice = __float2half2_rn(__uint_as_float(exponent << 23));
        scale[row] = *reinterpret_cast<const uint32_t*>(&twice);
      } else {
        // 2^(e - 127 + 94), in both halves: a code is v 2^-126, and w 2^-32 is wanted.
        scale[row] = exponent * 0x00800080u + 0x2f002f00u;
      }
    }
  }
};

template <typename T>
__device__ inline void unpack_step(uint32_t word, const Float4Scales<T>& s, uint32_t (&a)[4]) {
  constexpr bool kF16 = std::is_same_v<T, __half>;
  constexpr uint32_t kSigns = 0x80008000u, kRest = kF16 ? 0x0e000e00u : 0x01c001c0u;
  constexpr int kDown = kF16 ? 3 : 6;  // from the upper end of a half of the word
  // The lowest code of the halves is brought to their upper end for a[0], and so on.
  constexpr int kUp[4] = {12, 4, 8, 0};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int up = kUp[i];
    const uint32_t rest = up >= kDown ? word << (up - kDown) : word >> (kDown - up);
    uint32_t code = (word << up & kSigns) | (rest & kRest);
    if constexpr (kF16) code = fma_pair<T>(code, 0x74007400u /* 2^14 */, 0x80008000u);
    a[i] = fma_pair<T>(code, s.scale[i % 2], 0x80008000u);
  }
}

// Steps whose codes are 16 bytes of a lane.
template <int kBits>
constexpr int kStepsOf16Bytes = kBits == 4 ? 4 : 2;

// Step i of 16 bytes of a lane.
template <typename T, int kBits>
__device__ inline void unpack_step(const uint4& codes, int i, const CodedScales<T, kBits>& s,
                                   uint32_t (&a)[4]) {
  if constexpr (kBits == 4) {
    unpack_step<T>(i == 0 ? codes.x : i == 1 ? codes.y : i == 2 ? codes.z : codes.w, s, a);
  } else {
    unpack_step<T>(i == 0 ? codes.x : codes.z, i == 0 ? codes.y : codes.w, s, a);
  }
}

}  // namespace inferd::cuda
