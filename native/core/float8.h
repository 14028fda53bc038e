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

// Twice the value of a code: a whole number, so that products with it are those of integers.
constexpr int8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline float e8m0_to_f32(uint8_t s) {
  return s == 0xff ? std::bit_cast<float>(0x7fc00000u) : std::ldexp(1.0f, s - 127);
}

}  // namespace inferd
