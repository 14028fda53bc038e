// See weights.h.
#include "cuda/weights.h"

#include "core/error.h"
#include "core/half.h"

namespace inferd::cuda {

std::unique_ptr<CudaWeight> new_weight(int64_t rows, int64_t cols, DType dtype) {
  if (dtype != DType::kF16 && dtype != DType::kBF16)
    throw Error(ErrorCode::kUnsupported, "The CUDA backend holds weights as f16 or bf16.");
  auto weight = std::make_unique<CudaWeight>();
  weight->rows = rows;
  weight->cols = cols;
  weight->dtype = dtype;
  weight->memory = allocate_device(static_cast<size_t>(rows * cols * dtype_bytes(dtype)));
  weight->plain = weight->memory.get();
  return weight;
}

void upload_rows(CudaWeight& weight, int64_t first_row, const Tensor& source, Uploader& uploader,
                 cudaStream_t stream) {
  if (source.cols() != weight.cols || first_row < 0 || first_row + source.rows() > weight.rows) {
    throw Error(
        ErrorCode::kBadModel,
        format("rows %lld to %lld of %lld columns do not fit a weight of [%lld, %lld]",
               static_cast<long long>(first_row), static_cast<long long>(first_row + source.rows()),
               static_cast<long long>(source.cols()), static_cast<long long>(weight.rows),
               static_cast<long long>(weight.cols)));
  }
  const int64_t element = dtype_bytes(weight.dtype);
  char* to = static_cast<char*>(weight.plain) + first_row * weight.cols * element;
  const auto bytes = static_cast<size_t>(source.size() * element);
  if (source.dtype == weight.dtype) return uploader.copy(to, source.data, bytes, stream);
  uploader.copy(to, bytes, static_cast<size_t>(element), stream,
                [&](void* out, size_t at, size_t count) {
                  const int64_t first = static_cast<int64_t>(at) / element;
                  for (int64_t i = 0; i < static_cast<int64_t>(count) / element; ++i) {
                    store_f32(out, weight.dtype, i, load_f32(source.data, source.dtype, first + i));
                  }
                });
}

}  // namespace inferd::cuda
