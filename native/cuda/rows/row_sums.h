// Sums of rows of activations, kept from step to step: pooled hidden states. Raw device pointers;
// see row_sums.cu.
#pragma once
#include <cstdint>

#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

struct RowSumArgs {
  float* sums;             // [any, hidden], in and out, 8-byte aligned
  const void* x;           // [rows, hidden] of 16 bits, packed, 4-byte aligned
  int32_t hidden;          // even
  const int32_t* entries;  // [count, 4]: row of sums, first row of x, rows of x, 1 to begin anew
  int32_t count;           // of entries, at most 65,535
};

// Adds the rows that each entry names to its sum, or begins it with them; no two entries may have
// the same sum. Other sizes: cudaErrorInvalidValue.
cudaError_t sum_rows(Half type, const RowSumArgs& args, const Launch& launch);

}  // namespace inferd::cuda
