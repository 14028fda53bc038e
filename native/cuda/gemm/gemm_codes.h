// Products of weights that are 8-bit codes with tables of scales: what becomes of x, and of weights
// that no kernel takes as they are. Host code, any thread.
#pragma once
#include "cuda/device/launch.h"
#include "cuda/gemm/gemm_args.h"

namespace inferd::cuda {

// Up to so many rows the kernel for few rows, called for some rows at a time, reads fewer bytes
// than widened weights take.
constexpr int32_t kMostSliced = 48;

// Bytes that a product of m rows by a weight [rows, cols] wants; 0 of plain ones.
size_t spare_bytes(const WeightFormat& format, int64_t m, int64_t rows, int64_t cols);

// `args` with x quantized into its spare memory, where a kernel takes that; else `args`. Enqueues
// nothing.
GemmArgs with_codes(const GemmArgs& args);
// Enqueues what with_codes() says, the norm ahead of it included.
cudaError_t quantize_x(const GemmArgs& args, const GemmArgs& quantized, const Launch& launch);

// The product of rows [first, first + as many as the kernel for few rows takes) of x.
GemmArgs rows_of(const GemmArgs& args, int32_t first);
// The product by rows [first, first + count) of w, which lie widened in the spare memory; of a
// product that is not gated.
GemmArgs widened_rows(const GemmArgs& args, int32_t first, int32_t count);

}  // namespace inferd::cuda
