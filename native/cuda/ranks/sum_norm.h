// The sum of rows that several ranks have parts of, into the residual, and the norm of the result.
// Raw device pointers; see sum_norm.cu.
#pragma once
#include <cstdint>

#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"
#include "cuda/ranks/links.h"

namespace inferd::cuda {

// residual[r] += scale * (parts[0][r] + parts[1][r] + ..), summed in f32 and rounded once; then, of
// an `out` that is not null, out[r] = rms_norm(residual[r]) * weight, which may be null: all ones.
// The bits are those of all_reduce() and rms_norm() (rows/norm.h). All [rows, width] packed,
// 16-byte aligned; 2 to kMostRanks parts; width a multiple of 8, at most 16384, else
// cudaErrorInvalidValue.
struct SumNormArgs {
  void* out;
  void* residual;
  const void* parts[kMostRanks];  // of rank 0, 1, ..
  int32_t ranks;
  float scale;
  const float* weight;
  float eps;
  int64_t rows;
  int32_t width;
};
cudaError_t sum_rms_norm(Half type, const SumNormArgs& args, const Launch& launch);

}  // namespace inferd::cuda
