// A linear layer as the GEMM launchers take it. Raw device pointers.
#pragma once
#include <cstdint>

#include "half_type.h"

namespace inferd::cuda {

enum class GemmOut { kHalf, kF32 };

// y[m, n] = x[m, k] w[n, k]^T (+ bias) (+ y when `add_to_y`), accumulated in f32.
struct GemmArgs {
  Half type;  // of x and w
  GemmOut out;
  const void* x;  // row i at x + i * x_stride elements; 16-byte aligned rows
  int64_t x_stride;
  const void* w;  // [n, k] packed, 16-byte aligned
  void* y;        // of `type` or f32, row i at y + i * y_stride elements
  int64_t y_stride;
  const void* bias;  // [n] of y's type, or null
  bool add_to_y;
  int32_t m, n, k;
};

}  // namespace inferd::cuda
