// A linear layer as the GEMM launchers take it. Raw device pointers.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/weight_format.h"
#include "cuda/device/half_type.h"

namespace inferd::cuda {

enum class GemmOut { kHalf, kF32 };

// Weights as they are, in the type of the activations.
inline WeightView plain_weight(Half type, const void* data) {
  return {.format = type == Half::kF16 ? kFormatF16 : kFormatBF16, .codes = data};
}

// Device memory for a product to use while it runs, 256-byte aligned: see spare_bytes().
struct GemmSpare {
  void* data = nullptr;
  size_t bytes = 0;
};

constexpr int32_t kGemmTickets = 16384;

// y[m, n] = x[m, k] w[n, k]^T (+ bias) (+ y when `add_to_y`), accumulated in f32. When `gated`, w
// is [2 n, k] and y = silu(x w[0 .. n)^T) * (x w[n .. 2 n)^T), both factors plus their half of
// `bias`; then y is of `type` and `add_to_y` is false.
struct GemmArgs {
  Half type;  // of x, and of plain weights
  GemmOut out;
  const void* x;  // row i at x + i * x_stride elements; 16-byte aligned rows
  int64_t x_stride;
  // [n, k] ([2 n, k] gated); plain ones packed, 16-byte aligned, those of codes as
  // rows/coded_layout.h says, paired when gated.
  WeightView w;
  void* y;  // of `type` or f32, row i at y + i * y_stride elements
  int64_t y_stride;
  const void* bias;  // [n], or [2 n] when gated, of y's type, or null
  bool add_to_y;
  int32_t m, n, k;
  bool gated = false;
  // Gated only: [m, 2 n] of `type`, packed, for ways that compute the product first; then out of
  // use.
  void* scratch = nullptr;
  // In place of x, its rows divided by their root mean square: x / sqrt(mean(x^2) + norm_eps). Then
  // y is of `type`, `add_to_y` is false and x is packed.
  bool norm_x = false;
  float norm_eps = 0;
  const float* norm_weight = nullptr;  // [k], multiplies the columns then; null: all ones
  // norm_x only: [m, k] of `type`, packed, for ways that do so first; then out of use.
  void* norm_scratch = nullptr;
  GemmSpare spare{};  // of weights other than plain ones; GemmLt gives plain ones its own
  // [kGemmTickets] zeros in device memory, which a product leaves zero again; also of GemmLt.
  int32_t* tickets = nullptr;
  // Not null: x is [m, k] codes of the kind of the weight's, packed, with scales as quantize_rows()
  // makes them.
  const float* x_scales = nullptr;
};

// What cuBLASLt and the kernels of plain weights can multiply.
inline bool plain_weights(const GemmArgs& p) {
  return p.w.format == plain_weight(p.type, nullptr).format;
}

}  // namespace inferd::cuda
