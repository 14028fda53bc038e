// Linear weights on the device: row-major, in the type of the activations.
#pragma once
#include <functional>

#include "core/backend.h"
#include "cuda/device/half_type.h"
#include "cuda/runtime/memory.h"
#include "cuda/runtime/staging.h"

namespace inferd::cuda {

constexpr WeightFormat kWeightFormats[] = {kFormatF16, kFormatBF16};

struct CudaWeight final : PackedWeight {
  using PackedWeight::PackedWeight;

  DeviceMemory memory;
  std::function<void(const CudaWeight*)> at_end;  // its backend's: what points here goes first

  ~CudaWeight() override {
    if (at_end) at_end(this);
  }
  WeightView view() const { return {.format = format, .codes = memory.get()}; }
  DType dtype() const { return format == kFormatF16 ? DType::kF16 : DType::kBF16; }
  // Rows [first, first + count), for writing.
  Tensor some_rows(int64_t first, int64_t count) {
    char* from = static_cast<char*>(memory.get()) + first * cols * dtype_bytes(dtype());
    return Tensor::matrix(from, dtype(), count, cols);
  }
};

// Throws Error(kUnsupported) for formats that are not kept, Error(kOutOfMemory).
std::unique_ptr<CudaWeight> new_weight(const WeightSpec& spec);

// Enqueues rows [first_row, first_row + n) of `source` [n, cols], f32, f16 or bf16, converted on
// the host where the type differs. Throws Error(kBadModel) on a wrong shape.
void upload_rows(CudaWeight& weight, int64_t first_row, const Tensor& source, Uploader& uploader,
                 cudaStream_t stream);

// Enqueues dummy numbers into `rows`: f32, f16 or bf16, packed. See weights_fill.cu.
cudaError_t fill_dummy_rows(const Tensor& rows, const DummyRows& numbers, cudaStream_t stream);

// Enqueues weight[r][c] *= factors[c], rounded to the 16-bit type; cols a multiple of 8.
cudaError_t scale_weight_columns(Half type, void* weight, const float* factors, int64_t rows,
                                 int64_t cols, cudaStream_t stream);

// Enqueues out[i] = values[i] in the 16-bit type.
cudaError_t narrow_floats(Half type, void* out, const float* values, int64_t count,
                          cudaStream_t stream);

}  // namespace inferd::cuda
