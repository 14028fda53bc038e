// See weights.h.
#include "cuda/rows/weights.h"

#include "core/error.h"
#include "core/half.h"

namespace inferd::cuda {

std::unique_ptr<CudaWeight> new_weight(const WeightSpec& spec) {
  if (const std::string refusal = refusal_of(spec.format, kWeightFormats); !refusal.empty())
    throw Error(ErrorCode::kUnsupported, "The CUDA backend cannot multiply: " + refusal + ".");
  auto weight = std::make_unique<CudaWeight>(spec);
  const int64_t bytes = weight_bytes(spec.format, spec.rows, spec.cols);
  weight->memory = allocate_device(static_cast<size_t>(bytes));
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
  const DType dtype = weight.dtype();
  const int64_t element = dtype_bytes(dtype);
  void* to = weight.some_rows(first_row, source.rows()).data;
  const auto bytes = static_cast<size_t>(source.size() * element);
  if (source.dtype == dtype) return uploader.copy(to, source.data, bytes, stream);
  uploader.copy(to, bytes, static_cast<size_t>(element), stream,
                [&](void* out, size_t at, size_t count) {
                  const int64_t first = static_cast<int64_t>(at) / element;
                  for (int64_t i = 0; i < static_cast<int64_t>(count) / element; ++i) {
                    store_f32(out, dtype, i, load_f32(source.data, source.dtype, first + i));
                  }
                });
}

}  // namespace inferd::cuda
