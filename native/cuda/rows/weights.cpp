// See weights.h.
#include "cuda/rows/weights.h"

#include <algorithm>

#include "core/error.h"
#include "core/half.h"
#include "cuda/rows/coded_weights.h"
#include "cuda/rows/scaled_rows.h"

namespace inferd::cuda {

namespace {

// That `count` rows of `cols` columns, from `first` on, are some of what is [of_rows, of_cols].
void check_rows(const CudaWeight& weight, int64_t of_rows, int64_t of_cols, int64_t first,
                int64_t count, int64_t cols) {
  if (cols == of_cols && first >= 0 && first + count <= of_rows) return;
  throw Error(ErrorCode::kBadModel,
              format("rows %lld to %lld of %lld columns do not fit a weight of [%lld, %lld]",
                     static_cast<long long>(first), static_cast<long long>(first + count),
                     static_cast<long long>(cols), static_cast<long long>(weight.rows),
                     static_cast<long long>(weight.cols)));
}

CodedRowsOf coded_rows(const CudaWeight& weight, int64_t first, int64_t count) {
  return {.layout = weight.layout(),
          .tiles = weight.memory.get(),
          .first_row = static_cast<int32_t>(first),
          .rows = static_cast<int32_t>(count),
          .remainders = weight.remainders.get()};
}

bool is_codes(const CudaWeight& weight, DType dtype) {
  return dtype == (weight.format.codes == CodeType::kFloat8 ? DType::kF8 : DType::kI8);
}

// Blocks that are read at a time: they stay in the first cache.
constexpr int64_t kBlocksAtOnce = 128;

// body(range) of all of a matrix of blocks, `at_once` rows at a time.
template <typename Body>
void for_ranges(int64_t rows, int64_t blocks, int64_t at_once, const Body& body) {
  const int64_t across = std::max<int64_t>(1, kBlocksAtOnce / at_once);
  for (int64_t row = 0; row < rows; row += at_once) {
    for (int64_t first = 0; first < blocks; first += across) {
      body(BlockRange{row, std::min(at_once, rows - row), first, std::min(across, blocks - first)});
    }
  }
}

}  // namespace

int64_t scale_remainder_bytes(const WeightFormat& format, int64_t rows, int64_t cols) {
  const bool kept = in_plain_tiles(format) && format.zeros == Zeros::kMinima;
  constexpr int64_t kTwoBF16 = 4;
  return kept ? rows * scales_across(format, cols) * kTwoBF16 : 0;
}

std::unique_ptr<CudaWeight> new_weight(const WeightSpec& spec, cudaStream_t stream) {
  if (const std::string refusal = refusal_of(spec.format, kWeightFormats); !refusal.empty())
    throw Error(ErrorCode::kUnsupported, "The CUDA backend cannot multiply: " + refusal + ".");
  auto weight = std::make_unique<CudaWeight>(spec);
  if (!spec.format.scaled) {
    const int64_t bytes = weight_bytes(spec.format, spec.rows, spec.cols);
    weight->memory = allocate_device(static_cast<size_t>(bytes));
    return weight;
  }
  if (weight->coded()) {
    const auto bytes = static_cast<size_t>(weight->layout().bytes());
    weight->memory = allocate_device(bytes);
    // What fills up tiles is zero.
    check(cudaMemsetAsync(weight->memory.get(), 0, bytes, stream), "clearing a weight");
    const int64_t more = scale_remainder_bytes(spec.format, spec.rows, spec.cols);
    if (spec.looked_up && more > 0) {
      weight->remainders = allocate_device(static_cast<size_t>(more));
      check(cudaMemsetAsync(weight->remainders.get(), 0, static_cast<size_t>(more), stream),
            "clearing a weight");
    }
    return weight;
  }
  const int64_t scales =
      scales_down(spec.format, spec.rows) * scales_across(spec.format, spec.cols);
  weight->memory = allocate_device(static_cast<size_t>(spec.rows * spec.cols));
  weight->scales = allocate_device(static_cast<size_t>(scales) * sizeof(float));
  return weight;
}

void quantize_into(CudaWeight& weight, int64_t first_row, const Tensor& source, Half type,
                   cudaStream_t stream) {
  check_rows(weight, weight.rows, weight.cols, first_row, source.rows(), source.cols());
  const WeightFormat& f = weight.format;
  if (weight.coded()) {
    return check(
        quantize_to_codes(type, coded_rows(weight, first_row, source.rows()), source, stream),
        "quantizing weights");
  }
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
  check_rows(weight, weight.rows, weight.cols, first_row, source.rows(), source.cols());
  const auto source_bytes = static_cast<size_t>(source.size() * dtype_bytes(source.dtype));
  if (is_scaled_rows(weight.format) && is_codes(weight, source.dtype)) {
    return upload.uploader.copy(static_cast<char*>(weight.memory.get()) + first_row * weight.cols,
                                source.data, source_bytes, upload.stream);
  }
  if (weight.format.scaled) {
    Tensor rows = source;
    rows.data = upload.rows.get(source_bytes, upload.stream);
    upload.uploader.copy(rows.data, source.data, source_bytes, upload.stream);
    return quantize_into(weight, first_row, rows, upload.type, upload.stream);
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
  if (!is_scaled_rows(weight.format) || source.dtype != DType::kF32) {
    throw Error(ErrorCode::kUnsupported, "The CUDA backend takes no such scales of weights as " +
                                             format_name(weight.format) + ".");
  }
  const int64_t across = scales_across(weight.format, weight.cols);
  check_rows(weight, scales_down(weight.format, weight.rows), across, first_row, source.rows(),
             source.cols());
  upload.uploader.copy(static_cast<float*>(weight.scales.get()) + first_row * across, source.data,
                       static_cast<size_t>(source.size()) * sizeof(float), upload.stream);
}

void upload_codes(CudaWeight& weight, int64_t first_row, int64_t rows, const CodedRows& source,
                  const WeightUpload& upload) {
  // Records are larger than what is kept of them: so many bytes at a time.
  constexpr int64_t kStagedBytes = 64 << 20;
  check_rows(weight, weight.rows, weight.cols, first_row, rows, weight.cols);
  const CodedLayout layout = weight.layout();
  const int64_t blocks = (weight.cols + kCodedBlock - 1) / kCodedBlock;
  const int64_t row_bytes = blocks * static_cast<int64_t>(sizeof(CodedRecord));
  const int64_t at_once = std::min(source.rows_at_once(), kBlocksAtOnce);
  const int64_t most = std::max<int64_t>(1, kStagedBytes / row_bytes);
  for (int64_t row = 0; row < rows; row += most) {
    const int64_t count = std::min(most, rows - row);
    const auto bytes = static_cast<size_t>(count * row_bytes);
    void* staged = upload.rows.get(bytes, upload.stream);
    const auto fill = [&](void* to, size_t at, size_t piece) {
      auto* records = static_cast<CodedRecord*>(to);
      const int64_t begin = row + static_cast<int64_t>(at) / row_bytes;
      for_ranges(static_cast<int64_t>(piece) / row_bytes, blocks, at_once, [&](BlockRange some) {
        CodedBlock read[kBlocksAtOnce];
        source.rows_of_blocks({begin + some.row, some.rows, some.first, some.count}, read);
        for (int64_t r = 0; r < some.rows; ++r) {
          coded_records(read + r * some.count, some.count, layout,
                        records + (some.row + r) * blocks + some.first);
        }
      });
    };
    upload.uploader.copy(staged, bytes, static_cast<size_t>(at_once * row_bytes), upload.stream,
                         fill);
    check(store_records(upload.type, coded_rows(weight, first_row + row, count),
                        static_cast<const CodedRecord*>(staged), upload.stream),
          "laying out a weight");
  }
}

}  // namespace inferd::cuda
