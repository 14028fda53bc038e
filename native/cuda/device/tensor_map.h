// Descriptions of tensors for the tensor copy engine of sm_90. Host code, any thread.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/device/half_type.h"

namespace inferd::cuda {

// A view of 16-bit values [.., dims[1], dims[0]], copied in boxes in the 128-byte swizzle.
struct TensorView {
  const void* base;
  uint32_t rank;
  cuuint64_t dims[4];
  cuuint64_t stride_bytes[3];  // of dims 1 and on; they need not grow
  cuuint32_t box[4];
};

// Fills `map`; touches neither a device nor the memory described, so it may run during a capture.
// cudaErrorNotSupported without a driver that has an encoder, cudaErrorInvalidValue when it refuses
// the view (base and strides must be multiples of 16 bytes).
cudaError_t encode_tensor_map(Half type, const TensorView& view, CUtensorMap& map);

}  // namespace inferd::cuda
