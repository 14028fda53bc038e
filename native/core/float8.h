// The 8-bit and 4-bit floating point numbers of quantized checkpoints.
//
//   e4m3 ("fn")  sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinity, 0x7f and 0xff NaN
//   e2m1         sign, 2 bits of exponent, 1 of mantissa: 0 .5 1 1.5 2 3 4 6
//   e8m0         a power of two, 2^(s - 127); 0xff NaN
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/half.h"

namespace inferd {

inline float e4m3_to_f32(uint8_t v) {
  if ((v & 0x7f) == 0x7f) return std::bit_cast<float>(0x7fc00000u);
  // Moved into a half float the exponent is short by 8.
  const auto half = static_cast<uint16_t>((v & 0x80) << 8 | (v & 0x7f) << 7);
  return f16_to_f32(half) * 256.0f;
}

// To the nearest, of two the one with an even code; numbers beyond 448 become it.
inline uint8_t f32_to_e4m3(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  const float size = std::bit_cast<float>(magnitude);
  constexpr float kLeastNormal = 0.015625f, kLeast = 0.001953125f;
  if (size < kLeastNormal)
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(size / kLeast)));
  const uint32_t up = magnitude + 0x7ffffu + (magnitude >> 20 & 1);
  const uint32_t code = (up >> 20) - (uint32_t{127 - 7} << 3);
  return static_cast<uint8_t>(sign | (code < 0x7e ? code : 0x7e));
}

// Twice the value of a code: a whole number, so that products with it are those of integers.
constexpr int8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline float e8m0_to_f32(uint8_t s) {
  return s == 0xff ? std::bit_cast<float>(0x7fc00000u) : std::ldexp(1.0f, s - 127);
}

}  // namespace inferd
