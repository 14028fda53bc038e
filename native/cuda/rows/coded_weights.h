// Fills weights of codes (coded_layout.h), and reads them back as plain numbers.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "core/coded_block.h"
#include "core/host_device.h"
#include "core/tensor.h"
#include "cuda/device/half_type.h"
#include "cuda/rows/coded_layout.h"

namespace inferd::cuda {

// A CodedBlock as codes without a sign: w[i] = scale[i / 16] u[i] + min[i / 16], where the minima
// of layouts without any are those that the layout implies.
struct CodedRecord {
  float scale[2], min[2];
  uint8_t codes[kCodedBlock];
};

// The code of e2m1 nearest to `value`, of two the even one.
INFERD_HOST_DEVICE inline uint8_t float4_code(float value) {
  const float v = value < 0 ? -value : value;
  const int code = v <= 0.25f   ? 0
                   : v < 0.75f  ? 1
                   : v <= 1.25f ? 2
                   : v < 1.75f  ? 3
                   : v <= 2.5f  ? 4
                   : v < 3.5f   ? 5
                   : v <= 5.f   ? 6
                                : 7;
  return static_cast<uint8_t>(code | (value < 0 ? 8 : 0));
}

// What `count` blocks are in the layout, of whose format they are: of e2m1 the codes, and
// w = scale[0] v.
void coded_records(const CodedBlock* blocks, int64_t count, const CodedLayout& layout,
                   CodedRecord* out);

// Rows [first_row, first_row + rows) of a weight at `tiles`.
struct CodedRowsOf {
  CodedLayout layout;
  void* tiles;
  int32_t first_row, rows;
  void* remainders = nullptr;  // of scales and minima (coded_scales.cuh), where they are kept
};

// Enqueues the taking in of `records` [rows, blocks of 32 columns].
cudaError_t store_records(Half type, const CodedRowsOf& to, const CodedRecord* records,
                          cudaStream_t stream);

// Enqueues the quantizing, as core/quant.h does it, of `source` [rows, cols], packed f32, f16 or
// bf16 on the device.
cudaError_t quantize_to_codes(Half type, const CodedRowsOf& to, const Tensor& source,
                              cudaStream_t stream);

// Enqueues out [rows, cols], packed, of `type` = what the codes at `tiles` stand for, in the order
// of the weight's rows; rows 16-byte aligned, cols a multiple of 8.
cudaError_t widen_codes(Half type, const CodedLayout& layout, const void* tiles, void* out,
                        cudaStream_t stream);

}  // namespace inferd::cuda
