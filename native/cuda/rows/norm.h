// RMSNorm, alone and fused with the residual sum. Raw device pointers; see norm.cu.
#pragma once
#include <cstdint>

#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

// out[r] = rms_norm(x[r]) * weight, which may be null: all ones; with `residual`: residual[r] +=
// x[r] first, and the norm is of the sum. x, out, residual [rows, width] packed, 16-byte aligned;
// weight [width] f32, 16-byte aligned. out may be x. width a multiple of 8, at most 16384, else
// cudaErrorInvalidValue.
cudaError_t rms_norm(Half type, void* out, const void* x, void* residual, const float* weight,
                     int64_t rows, int32_t width, float eps, const Launch& launch);

// The same without `residual`, of rows that lie `stride` values apart in x and in out: parts of
// wider rows. `stride` is a multiple of 8.
cudaError_t rms_norm_rows(Half type, void* out, int64_t out_stride, const void* x, int64_t x_stride,
                          const float* weight, int64_t rows, int32_t width, float eps,
                          const Launch& launch);

}  // namespace inferd::cuda
