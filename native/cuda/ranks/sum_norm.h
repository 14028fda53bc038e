// The sum of rows that two ranks have parts of, into the residual, and the norm of the result. Raw
// device pointers; see sum_norm.cu.
#pragma once
#include <cstdint>

#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

// residual[r] += scale * (first[r] + second[r]), summed in f32 and rounded once; then out[r] =
// rms_norm(residual[r]) * weight, which may be null: all ones. The bits are those of add_pushed()
// and rms_norm() (rows/norm.h). All [rows, width] packed, 16-byte aligned; width a multiple of 8,
// at most 16384, else cudaErrorInvalidValue.
struct SumNormArgs {
  void* out;
  void* residual;
  const void* first;   // the part of rank 0
  const void* second;  // of rank 1
  float scale;
  const float* weight;
  float eps;
  int64_t rows;
  int32_t width;
};
cudaError_t sum_rms_norm(Half type, const SumNormArgs& args, const Launch& launch);

}  // namespace inferd::cuda
