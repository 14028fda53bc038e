// Linear weights on the device: row-major, in the type of the activations.
#pragma once
#include <functional>

#include "core/backend.h"
#include "cuda/half_type.h"
#include "cuda/memory.h"
#include "cuda/staging.h"

namespace inferd::cuda {

struct CudaWeight final : PackedWeight {
  DeviceMemory memory;
  std::function<void(const CudaWeight*)> at_end;  // its backend's: what points here goes first

  ~CudaWeight() override {
    if (at_end) at_end(this);
  }
};

// Throws Error(kUnsupported) for other types than f16 and bf16, Error(kOutOfMemory).
std::unique_ptr<CudaWeight> new_weight(int64_t rows, int64_t cols, DType dtype);

// Enqueues rows [first_row, first_row + n) of `source` [n, cols], f32, f16 or bf16, converted on
// the host where the type differs. Throws Error(kBadModel) on a wrong shape.
void upload_rows(CudaWeight& weight, int64_t first_row, const Tensor& source, Uploader& uploader,
                 cudaStream_t stream);

// Enqueues dummy_weight(counter + i) into element i of `rows`: f32, f16 or bf16. See
// weights_fill.cu.
cudaError_t fill_dummy_rows(void* data, DType dtype, int64_t count, uint64_t counter,
                            cudaStream_t stream);

// Enqueues weight[r][c] *= factors[c], rounded to the 16-bit type; cols a multiple of 8.
cudaError_t scale_weight_columns(Half type, void* weight, const float* factors, int64_t rows,
                                 int64_t cols, cudaStream_t stream);

// Enqueues out[i] = values[i] in the 16-bit type.
cudaError_t narrow_floats(Half type, void* out, const float* values, int64_t count,
                          cudaStream_t stream);

}  // namespace inferd::cuda
