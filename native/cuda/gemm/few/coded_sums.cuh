// Products of a tile of codes (rows/coded_layout.h) with up to eight tokens, whose sums are scaled
// and not the weights: codes go to tensor cores as they are, in the lowest bits of 16-bit numbers,
// and the sum over a group is multiplied by its scale. A minimum is the same for all weights of its
// group, so it is multiplied by the sum of x over the group: one more product for a tile.
//
//   sum w x = sum over groups (s sum u x + m sum x)
//
// Numbers: the bits of a code u are u 2^-133 as bf16, or 16 times that where u is the upper half of
// a byte, and u 2^-24 as f16. Tensor cores take such numbers, which have no leading one, as they
// take others. x in bf16 is multiplied by 2^64 before, so that f32 sums keep all their bits, and by
// 2^60 where it meets upper halves. A sum of x is kept as two 16-bit numbers, exact to 2^-17 of it.
#pragma once
#include "cuda/device/mma.cuh"
#include "cuda/rows/coded_tile.cuh"

namespace inferd::cuda {

template <typename T, int kBits>
struct CodedSums {
  static constexpr bool kF16 = std::is_same_v<T, __half>;
  // What sums are multiplied by in the end, those of minima in another unit.
  static constexpr float kUnit = kF16 ? 16777216.f : 1.f / kCodedUnit;
  static constexpr float kMinimaUnit = kF16 ? 256.f : 1.f / kCodedUnit;
  static constexpr bool kApart = kUnit != kMinimaUnit;
  // What x is prepared by, and that of pairs that meet codes in lower halves, and in upper ones.
  static constexpr float kXUnit = kF16 ? 1.f : 18446744073709551616.f;
  static constexpr uint32_t kXLow = 0x5f805f80u, kXHigh = kBits == 4 ? 0x5d805d80u : kXLow;
  static constexpr uint32_t kNegativeZeros = 0x80008000u;

  // A pair of x as products take it; `high`: it is one of columns 8 to 15 of 16.
  __device__ static uint32_t prepared(uint32_t pair, bool high) {
    return kF16 ? pair : fma_pair<T>(pair, high ? kXHigh : kXLow, kNegativeZeros);
  }

  // The codes of step i of 16 bytes of a lane.
  __device__ static void operands(const uint4& codes, int i, uint32_t (&a)[4]) {
    if constexpr (kBits == 4) {
      constexpr uint32_t kLow = 0x000f000fu, kHigh = kF16 ? kLow : 0x00f000f0u;
      const uint32_t word = i == 0 ? codes.x : i == 1 ? codes.y : i == 2 ? codes.z : codes.w;
      const uint32_t next = word >> 8;
      a[0] = word & kLow;
      a[1] = next & kLow;
      a[2] = (kF16 ? word >> 4 : word) & kHigh;
      a[3] = (kF16 ? word >> 12 : next) & kHigh;
    } else {
      const uint32_t first = i == 0 ? codes.x : codes.z, second = i == 0 ? codes.y : codes.w;
      a[0] = __byte_perm(first, 0, 0x4140);
      a[1] = __byte_perm(second, 0, 0x4140);
      a[2] = __byte_perm(first, 0, 0x4342);
      a[3] = __byte_perm(second, 0, 0x4342);
    }
  }

  __device__ static float2 numbers(uint32_t pair) {
    if constexpr (kF16) {
      return unpack2<T>(pair);
    } else {
      return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
    }
  }
};

// Sums of x over the groups of a tile, as B of the product with minima: of token g of eight, groups
// 2t and 2t + 1, and what rounding them left.
struct GroupSums {
  uint32_t high, low;

  // Of sums of x as it is prepared (bf16), or of plain x (f16).
  template <typename T, int kBits>
  __device__ static GroupSums of(float first, float second) {
    using S = CodedSums<T, kBits>;
    constexpr float kTo = S::kF16 ? 1.f / S::kMinimaUnit : 1.f;
    const float a = first * kTo, b = second * kTo;
    const uint32_t high = pack2<T>(a, b);
    const float2 kept = S::numbers(high);
    return {high, pack2<T>(a - kept.x, b - kept.y)};
  }
};

// Where a lane finds what it needs of a tile's scales, in bytes from the tile's beginning.
template <int kBits, bool kMinima>
struct ScalePlaces {
  // Scales come for two steps at a time, or for one where a group may have 16 columns: a longer
  // group's again, which is cheaper than asking whether they are the same.
  static constexpr int kSteps = kBits == 8 && kMinima ? 1 : 2;
  static constexpr int kEntry = kMinima ? 8 : 4, kGroup = 8 * kEntry;
  int scale[8 / kSteps];
  int minima[2];  // of groups 2t and 2t + 1; of others, whose sums of x are 0, any

  __device__ ScalePlaces(int group, int g, int t) {
    const int first = 256 * kBits + g * kEntry;
#pragma unroll
    for (int i = 0; i < 8 / kSteps; ++i) scale[i] = first + i * kSteps * 16 / group * kGroup;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int of = min(2 * t + i, kTileColumns128 / group - 1);
      minima[i] = first + of * kGroup + (kMinima ? 4 : 0);
    }
  }
};

// sums += the products of a tile in shared memory with x of eight tokens; those of minima to
// `minima`, which may be `sums` unless CodedSums::kApart.
template <typename T, int kBits, bool kMinima>
__device__ void multiply_tile(const uint8_t* tile, int lane,
                              const ScalePlaces<kBits, kMinima>& places, const uint4 (&x)[4],
                              const GroupSums& x_sums, float (&sums)[4], float (&minima)[4]) {
  using S = CodedSums<T, kBits>;
  using Places = ScalePlaces<kBits, kMinima>;
  constexpr int kSteps = kStepsOf16Bytes<kBits>;
  const auto word = [&](int at) { return *reinterpret_cast<const uint32_t*>(tile + at); };
  {
    // Columns 2t and 2t + 1 of A are minima of these groups, and again eight columns on.
    const uint32_t even = word(places.minima[0]), odd = word(places.minima[1]);
    uint32_t a = __byte_perm(even, odd, 0x5410), a8 = __byte_perm(even, odd, 0x7632);
    if constexpr (!kMinima) {
      // -8 and -128 (f16); in bf16 times 2^-133.
      constexpr uint32_t kMiddle = S::kF16 ? (kBits == 4 ? 0xc800c800u : 0xd800d800u)
                                           : (kBits == 4 ? 0x80088008u : 0x80808080u);
      a = fma_pair<T>(a, kMiddle, S::kNegativeZeros);
      a8 = fma_pair<T>(a8, kMiddle, S::kNegativeZeros);
    }
    mma16816<T>(minima, a, a8, a, a8, x_sums.high, x_sums.low);
  }
#pragma unroll
  for (int first = 0; first < 8; first += Places::kSteps) {
    float group[4] = {};
#pragma unroll
    for (int step = first; step < first + Places::kSteps; ++step) {
      const uint4 codes = *reinterpret_cast<const uint4*>(tile + step / kSteps * 512 + lane * 16);
      uint32_t a[4];
      S::operands(codes, step % kSteps, a);
      const uint4& v = x[step / 2];
      mma16816<T>(group, a[0], a[1], a[2], a[3], step % 2 == 0 ? v.x : v.z,
                  step % 2 == 0 ? v.y : v.w);
    }
    const float2 scale = S::numbers(word(places.scale[first / Places::kSteps]));
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[e] = fmaf(group[e], e < 2 ? scale.x : scale.y, sums[e]);
  }
}

}  // namespace inferd::cuda
