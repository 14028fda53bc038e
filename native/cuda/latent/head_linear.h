// Products of each head by a matrix of its own; see head_linear.cu.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

struct HeadLinearParams {
  void* out;  // row i at out + i * out_stride elements, head h from column h * out_step; 4-byte
              // aligned
  int64_t out_stride, out_step;
  const void* x;  // the same
  int64_t x_stride, x_step;
  const void* weight;  // [heads * head_rows, inputs]: rows h * head_rows .. + outputs are of head h
  int64_t head_rows;
  int32_t tokens, heads, outputs, inputs;
};

// Strides, steps, outputs and inputs must be even, else cudaErrorInvalidValue.
cudaError_t head_linear(Half type, const HeadLinearParams& params, const Launch& launch);

}  // namespace inferd::cuda
