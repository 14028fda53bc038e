// The quantizer behind kFormatInt8 and kFormatInt4: 32 inputs of one output feature share a scale
// and, in int4, a smallest value. Codes of int8 are written down as bytes 1..255.
//
//   int8: w = scale * (byte - 128), byte 1..255         (symmetric, 8.5 bits a weight)
//   int4: w = scale * code + min,   code 0..15          (5 bits a weight)
//
// Scales and minima are bf16: they have the range of float, so that no weight over- or underflows,
// and codes are chosen for the rounded scale, so that its rounding is no error of its own. Used at
// load time by the backends, each of which lays codes out in its own order; CUDA on the device.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/half.h"
#include "core/host_device.h"
#include "core/weight_format.h"

namespace inferd {

constexpr int64_t kQuantBlock = 32;

static_assert(kFormatInt8.block_cols == kQuantBlock && kFormatInt4.block_cols == kQuantBlock);

constexpr int64_t quant_blocks(int64_t cols) { return (cols + kQuantBlock - 1) / kQuantBlock; }

struct QuantBlock {
  uint8_t codes[kQuantBlock];
  uint16_t scale;  // bf16
  uint16_t min;    // bf16; int4 only
};

INFERD_HOST_DEVICE inline bool is_finite(float value) { return value * 0.0f == 0.0f; }

// The bf16 at or above a positive value.
INFERD_HOST_DEVICE inline uint16_t bf16_above(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits >> 16) + ((bits & 0xffff) != 0 && is_finite(value)));
}

INFERD_HOST_DEVICE inline void quantize_int8(const float* w, QuantBlock& out) {
  uint32_t top = 0;  // largest magnitude; as bits, so that a NaN stays one
  for (int64_t i = 0; i < kQuantBlock; ++i)
    top = std::max(top, std::bit_cast<uint32_t>(w[i]) & 0x7fffffffu);
  out.scale = bf16_above(std::bit_cast<float>(top) / 127.0f);
  out.min = 0;
  const float scale = bf16_to_f32(out.scale);
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    const float code = scale > 0 && is_finite(scale) ? w[i] / scale + 128.5f : 128.5f;
    out.codes[i] = static_cast<uint8_t>(static_cast<int32_t>(code));
  }
}

// Codes of a block for one scale and minimum; returns the squared error.
INFERD_HOST_DEVICE inline float int4_codes(const float* w, float scale, float min, uint8_t* codes) {
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  float error = 0;
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    const float code = std::min(15.0f, std::max(0.0f, (w[i] - min) * inverse + 0.5f));
    codes[i] = static_cast<uint8_t>(static_cast<int32_t>(code));
    const float miss = scale * static_cast<float>(codes[i]) + min - w[i];
    error += miss * miss;
  }
  return error;
}

// Tries a few ranges inside [smallest, largest], each refined once by the least-squares line
// through codes and weights, and keeps the one with the smallest squared error: cutting off the
// outermost weight often halves the error of the others.
INFERD_HOST_DEVICE inline void quantize_int4(const float* w, QuantBlock& out) {
  float low = w[0], high = w[0], finite = 0, sum = 0;
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    low = std::min(low, w[i]);
    high = std::max(high, w[i]);
    finite += w[i] * 0.0f;
    sum += w[i];
  }
  if (!(finite == 0.0f)) {  // an infinity or a NaN spoils the block, as it would the product
    for (int64_t i = 0; i < kQuantBlock; ++i) out.codes[i] = 0;
    out.scale = 0;
    out.min = 0x7fc0;
    return;
  }
  float best = -1;
  const auto consider = [&](float wanted_scale, float wanted_min, uint8_t* codes) {
    const uint16_t scale = f32_to_bf16(wanted_scale), min = f32_to_bf16(wanted_min);
    const float error = int4_codes(w, bf16_to_f32(scale), bf16_to_f32(min), codes);
    if (best >= 0 && !(error < best)) return;
    best = error;
    out.scale = scale;
    out.min = min;
    for (int64_t i = 0; i < kQuantBlock; ++i) out.codes[i] = codes[i];
  };
  constexpr float kRanges[] = {1.0f, 0.93f, 0.86f};
  for (const float share : kRanges) {
    uint8_t codes[kQuantBlock];
    const float scale = (high - low) * share / 15.0f;
    consider(scale, low + (high - low) * (1 - share) / 2, codes);
    float c = 0, cc = 0, cw = 0;
    for (int64_t i = 0; i < kQuantBlock; ++i) {
      const auto code = static_cast<float>(codes[i]);
      c += code;
      cc += code * code;
      cw += code * w[i];
    }
    constexpr auto n = static_cast<float>(kQuantBlock);
    const float spread = n * cc - c * c;
    const float slope = spread > 0 ? (n * cw - c * sum) / spread : 0.0f;
    if (slope > 0) consider(slope, (sum - slope * c) / n, codes);
  }
}

}  // namespace inferd
