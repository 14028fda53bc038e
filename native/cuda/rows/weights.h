// Linear weights on the device: row-major in the type of the activations, as 8-bit codes with a
// table of scales, or as codes of 4 and 8 bits in tiles (coded_layout.h).
#pragma once
#include <functional>

#include "core/backend.h"
#include "cuda/device/half_type.h"
#include "cuda/rows/coded_layout.h"
#include "cuda/runtime/memory.h"
#include "cuda/runtime/staging.h"

namespace inferd::cuda {

// Rows of integers (kInt8Rows) are widened while they are loaded: few rows of x are faster by their
// codes, but from 17 on no kernel multiplies these on tensor cores, and a step of 128 rows of
// Llama-3-8B on an H200 took 12.9 ms, in bf16 6.1.
constexpr WeightFormat kWeightFormats[] = {
    kFormatF16,
    kFormatBF16,
    kFloat8Rows,
    kFloat8Blocks,
    kFloat8Groups,
    kFormatInt8,
    kFormatInt4,
    kCodedInt8,
    kCodedInt4,
    kCodedInt4Minima,
    kCodedInt8Halves,
    kCodedFloat4,  // of experts only
    coded_format(CodeType::kSint4, 64, Zeros::kNone),
    coded_format(CodeType::kSint4, 128, Zeros::kNone),
    coded_format(CodeType::kUint4, 64, Zeros::kMinima),
    coded_format(CodeType::kUint4, 128, Zeros::kMinima),
    coded_format(CodeType::kInt8, 64, Zeros::kNone),
    coded_format(CodeType::kInt8, 128, Zeros::kNone),
};

// Products by gated weights know silu; another gate comes after, and their rows lie as they come.
constexpr bool fused_epilogue(Epilogue epilogue, Gate gate) {
  return epilogue != Epilogue::kGated || gate == Gate::kSilu;
}

struct CudaWeight final : PackedWeight {
  using PackedWeight::PackedWeight;

  DeviceMemory memory;
  DeviceMemory scales;                            // f32, of formats with a table of them
  DeviceMemory remainders;                        // see scale_remainder_bytes()
  std::function<void(const CudaWeight*)> at_end;  // its backend's: what points here goes first

  ~CudaWeight() override {
    if (at_end) at_end(this);
  }
  WeightView view() const {
    return {.format = format, .codes = memory.get(), .scales = scales.get()};
  }
  bool coded() const { return in_tiles(format); }
  // Of coded ones.
  CodedLayout layout() const {
    const bool paired = epilogue == Epilogue::kGated && fused_epilogue(epilogue, gate);
    return coded_layout(format, rows, cols, paired);
  }
  // Of weights without scales.
  DType dtype() const { return format == kFormatF16 ? DType::kF16 : DType::kBF16; }
  // Rows [first, first + count) of weights without scales, for writing.
  Tensor some_rows(int64_t first, int64_t count) {
    char* from = static_cast<char*>(memory.get()) + first * cols * dtype_bytes(dtype());
    return Tensor::matrix(from, dtype(), count, cols);
  }
};

// Of a weight whose rows are looked up. Products take scales and minima as rounded to 16 bits,
// which moves all numbers of a group together: of s u + m, where both may be larger than the sum,
// by more than rounding each number would. What that leaves is kept for looking rows up.
int64_t scale_remainder_bytes(const WeightFormat& format, int64_t rows, int64_t cols);

// Throws Error(kUnsupported) for formats that are not kept, Error(kOutOfMemory).
// What is filled up with zeros is so in the order of `stream`, in which the weight is to be filled:
// no other stream waits for a plain cudaMemset.
std::unique_ptr<CudaWeight> new_weight(const WeightSpec& spec, cudaStream_t stream);

// How rows come to the device: the copies, and room for rows that are quantized there.
struct WeightUpload {
  Uploader& uploader;
  Scratch& rows;
  Half type;  // of activations, and of the scales of coded weights
  cudaStream_t stream;
};

// Enqueues rows [first_row, first_row + n) of `source` [n, cols]: codes of the weight's own type as
// they are, or f32, f16 or bf16, quantized on the device, or converted on the host where the type
// differs. Throws Error(kBadModel) on a wrong shape.
void upload_rows(CudaWeight& weight, int64_t first_row, const Tensor& source,
                 const WeightUpload& upload);
// The same of rows of the table of scales, f32.
void upload_scales(CudaWeight& weight, int64_t first_row, const Tensor& source,
                   const WeightUpload& upload);
// Enqueues `source`, f32, f16 or bf16 on the device, quantized, into rows from `first_row` on. Rows
// of a block of scales come together.
void quantize_into(CudaWeight& weight, int64_t first_row, const Tensor& source, Half type,
                   cudaStream_t stream);

// Enqueues rows [first_row, first_row + rows) of a coded weight as `source` has their codes, laid
// out on the device.
void upload_codes(CudaWeight& weight, int64_t first_row, int64_t rows, const CodedRows& source,
                  const WeightUpload& upload);

// Enqueues dummy numbers into `rows`: f32, f16 or bf16, packed. See weights_fill.cu.
cudaError_t fill_dummy_rows(const Tensor& rows, const DummyRows& numbers, cudaStream_t stream);

// Enqueues weight[r][c] *= factors[c], rounded to the 16-bit type; cols a multiple of 8.
cudaError_t scale_weight_columns(Half type, void* weight, const float* factors, int64_t rows,
                                 int64_t cols, cudaStream_t stream);

// Enqueues out[i] = values[i] in the 16-bit type.
cudaError_t narrow_floats(Half type, void* out, const float* values, int64_t count,
                          cudaStream_t stream);

}  // namespace inferd::cuda
