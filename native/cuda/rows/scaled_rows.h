// Weights and activations as rows of 8-bit codes with tables of scales: made from numbers, and
// widened to numbers again. Raw device pointers; see scaled_rows.cu.
#pragma once
#include <cstdint>

#include "core/tensor.h"
#include "core/weight_format.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

// Scales of a row; rows of the table.
inline int64_t scales_across(const WeightFormat& f, int64_t cols) {
  return f.block_cols == 0 ? 1 : (cols + f.block_cols - 1) / f.block_cols;
}
inline int64_t scales_down(const WeightFormat& f, int64_t rows) {
  return (rows + f.block_rows - 1) / f.block_rows;
}

// Enqueues the codes [rows, cols] of `source`, f32, f16 or bf16, packed, and its scales, each the
// largest magnitude of its block over the largest code. `format` is one of is_scaled_rows().
cudaError_t quantize_weight_rows(const WeightFormat& format, void* codes, float* scales,
                                 const Tensor& source, cudaStream_t stream);

// Enqueues out[r][c] = the number that weight [first + r][c] stands for, rounded to `type`, packed;
// r < rows, `cols` a multiple of 8. `w` is of one of is_scaled_rows().
cudaError_t widen_weight_rows(Half type, void* out, const WeightView& w, int64_t first,
                              int64_t rows, int32_t cols, const Launch& launch);

// What becomes of rows of activations ahead of products of 8-bit codes.
struct QuantizeRows {
  Half type;
  const void* x;  // row i at x + i * x_stride elements; 16-byte aligned rows
  int64_t x_stride;
  int32_t rows, cols;  // cols a multiple of 16 up to 65536, or up to 16384 with a norm
  CodeType codes;      // kFloat8 or kInt8
  void* out;           // [rows, cols] codes
  float* scales;       // [rows]; of blocks [ceil(cols / 128), rows]
  bool blocks;         // a scale for 128 columns each; else one for the row
  bool norm = false;   // of x / sqrt(mean(x^2) + eps) * weight, rounded to `type`
  float eps = 0;
  const float* weight = nullptr;  // [cols], or null: all ones
};
// Enqueues. cudaErrorInvalidValue for what is not as above.
cudaError_t quantize_rows(const QuantizeRows& args, const Launch& launch);

}  // namespace inferd::cuda
