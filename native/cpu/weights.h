// Linear weights in panels, the layout the matrix kernels stream (see GemmTask in kernels.h).
// Filled at load time, then read-only.
#pragma once
#include <cstdint>

#include "core/backend.h"
#include "cpu/kernels.h"
#include "cpu/memory.h"
#include "cpu/threads.h"

namespace inferd::cpu {

struct CpuWeight final : PackedWeight {
  Buffer memory;
  int32_t panel_cols = 0;
  bool pairs = false;  // two k in one 32-bit word
  int32_t group = 1;   // inputs side by side in quantized blocks
  int64_t panel_bytes = 0;
  int64_t panels = 0;
};

// A zeroed weight of `rows` output features, kept as f32, f16, bf16, or quantized as kI8 or kI4.
// @throws Error(kUnsupported) for other types.
std::unique_ptr<CpuWeight> new_weight(const Kernels& kernels, int64_t rows, int64_t cols,
                                      DType dtype);

// Converts and repacks `source` [n, cols] into output features [first_row, first_row + n). @throws
// Error(kBadModel) on a wrong shape.
void pack_rows(CpuWeight& weight, int64_t first_row, const Tensor& source, ThreadPool& pool);

}  // namespace inferd::cpu
