// Scalar conversions between float32 and the two 16-bit formats: bfloat16 (upper half of a float32)
// and IEEE binary16. Both round to nearest, ties to even, keep infinities and quiet every NaN.
// Vector versions live with the kernels that need them.
#pragma once
#include <bit>
#include <cstdint>

#include "core/host_device.h"
#include "core/tensor.h"

namespace inferd {

INFERD_HOST_DEVICE inline float bf16_to_f32(uint16_t h) {
  return std::bit_cast<float>(uint32_t{h} << 16);
}

INFERD_HOST_DEVICE inline uint16_t f32_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
  // Shifted into place the exponent is short by 112; multiplying by 2^112 also makes subnormals
  // exact.
  const float scaled = std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(0x77800000u);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

inline uint16_t f32_to_f16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal result: adding 0.5 aligns the last kept bit with the last bit of the sum, which
    // then rounds to even.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude + 0xc8000fffu + odd) >> 13));
}

// Element i of an array of f32, f16 or bf16 values.
inline float load_f32(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF16:
      return f16_to_f32(static_cast<const uint16_t*>(data)[i]);
    case DType::kBF16:
      return bf16_to_f32(static_cast<const uint16_t*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

inline void store_f32(void* data, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::kF16:
      static_cast<uint16_t*>(data)[i] = f32_to_f16(value);
      break;
    case DType::kBF16:
      static_cast<uint16_t*>(data)[i] = f32_to_bf16(value);
      break;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

}  // namespace inferd
