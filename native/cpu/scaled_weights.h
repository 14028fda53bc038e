// Weights of 8-bit floats in panels: codes, and behind them the scales of the panel (GemmTask in
// kernels.h). Part of weights.h.
#pragma once
#include <cstdint>

#include "core/tensor.h"
#include "cpu/weights.h"

namespace inferd::cpu {

// Of one panel. panel_cols and cols are set.
int64_t float8_panel_bytes(const CpuWeight& weight);

// Rows that go into lanes [first, first + count) of a panel.
struct Float8Lanes {
  char* panel;
  int64_t first, count;
  const char* source;  // row of the first lane, at any address
  int64_t row_bytes;
  DType dtype;  // kF8: codes as they are; f32, f16, bf16: quantized here, with their scales
};
// @throws Error(kBadModel) for codes that are no numbers, Error(kUnsupported) where a scale would
// stand for more rows than these.
void fill_float8(const CpuWeight& weight, const Float8Lanes& lanes);

// Takes the scales [n, runs of a row] of blocks of rows from `first_block` on, f32.
// @throws Error(kBadModel) on a wrong shape.
void fill_scales(CpuWeight& weight, int64_t first_block, const Tensor& scales);

}  // namespace inferd::cpu
