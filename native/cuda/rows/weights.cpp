// See weights.h.
#include "cuda/rows/weights.h"

#include "core/error.h"
#include "core/half.h"
#include "cuda/rows/scaled_rows.h"

namespace inferd::cuda {

namespace {

// That `source` is rows, from `first` on, of what is [rows, cols].
void check_rows(const CudaWeight& weight, int64_t rows, int64_t cols, int64_t first,
                const Tensor& source) {
  if (source.cols() == cols && first >= 0 && first + source.rows() <= rows) return;
  throw Error(ErrorCode::kBadModel,
              format("rows %lld to %lld of %lld columns do not fit a weight of [%lld, %lld]",
                     static_cast<long long>(first), static_cast<long long>(first + source.rows()),
                     static_cast<long long>(source.cols()), static_cast<long long>(weight.rows),
                     static_cast<long long>(weight.cols)));
}

bool is_codes(const CudaWeight& weight, DType dtype) {
  return dtype == (weight.format.codes == CodeType::kFloat8 ? DType::kF8 : DType::kI8);
}

}  // namespace

std::unique_ptr<CudaWeight> new_weight(const WeightSpec& spec) {
  if (const std::string refusal = refusal_of(spec.format, kWeightFormats); !refusal.empty())
    throw Error(ErrorCode::kUnsupported, "The CUDA backend cannot multiply: " + refusal + ".");
  auto weight = std::make_unique<CudaWeight>(spec);
  if (!spec.format.scaled) {
    const int64_t bytes = weight_bytes(spec.format, spec.rows, spec.cols);
    weight->memory = allocate_device(static_cast<size_t>(bytes));
    return weight;
  }
  const int64_t scales =
      scales_down(spec.format, spec.rows) * scales_across(spec.format, spec.cols);
  weight->memory = allocate_device(static_cast<size_t>(spec.rows * spec.cols));
  weight->scales = allocate_device(static_cast<size_t>(scales) * sizeof(float));
  return weight;
}

void quantize_into(CudaWeight& weight, int64_t first_row, const Tensor& source,
                   cudaStream_t stream) {
  check_rows(weight, weight.rows, weight.cols, first_row, source);
  const WeightFormat& f = weight.format;
  if (first_row % f.block_rows != 0) {
    throw Error(ErrorCode::kBadModel, format("row %lld begins inside of a block of %d rows",
                                             static_cast<long long>(first_row), f.block_rows));
  }
  check(quantize_weight_rows(f, static_cast<char*>(weight.memory.get()) + first_row * weight.cols,
                             static_cast<float*>(weight.scales.get()) +
                                 first_row / f.block_rows * scales_across(f, weight.cols),
                             source, stream),
        "quantizing weights");
}

void upload_rows(CudaWeight& weight, int64_t first_row, const Tensor& source,
                 const WeightUpload& upload) {
  check_rows(weight, weight.rows, weight.cols, first_row, source);
  const auto source_bytes = static_cast<size_t>(source.size() * dtype_bytes(source.dtype));
  if (weight.format.scaled && is_codes(weight, source.dtype)) {
    return upload.uploader.copy(static_cast<char*>(weight.memory.get()) + first_row * weight.cols,
                                source.data, source_bytes, upload.stream);
  }
  if (weight.format.scaled) {
    Tensor rows = source;
    rows.data = upload.rows.get(source_bytes, upload.stream);
    upload.uploader.copy(rows.data, source.data, source_bytes, upload.stream);
    return quantize_into(weight, first_row, rows, upload.stream);
  }
  const DType dtype = weight.dtype();
  const int64_t element = dtype_bytes(dtype);
  void* to = weight.some_rows(first_row, source.rows()).data;
  if (source.dtype == dtype)
    return upload.uploader.copy(to, source.data, source_bytes, upload.stream);
  upload.uploader.copy(to, static_cast<size_t>(source.size() * element),
                       static_cast<size_t>(element), upload.stream,
                       [&](void* out, size_t at, size_t count) {
                         const int64_t first = static_cast<int64_t>(at) / element;
                         for (int64_t i = 0; i < static_cast<int64_t>(count) / element; ++i) {
                           store_f32(out, dtype, i, load_f32(source.data, source.dtype, first + i));
                         }
                       });
}

void upload_scales(CudaWeight& weight, int64_t first_row, const Tensor& source,
                   const WeightUpload& upload) {
  if (!weight.format.scaled || source.dtype != DType::kF32) {
    throw Error(ErrorCode::kUnsupported, "The CUDA backend takes no such scales of weights as " +
                                             format_name(weight.format) + ".");
  }
  const int64_t across = scales_across(weight.format, weight.cols);
  check_rows(weight, scales_down(weight.format, weight.rows), across, first_row, source);
  upload.uploader.copy(static_cast<float*>(weight.scales.get()) + first_row * across, source.data,
                       static_cast<size_t>(source.size()) * sizeof(float), upload.stream);
}

}  // namespace inferd::cuda
