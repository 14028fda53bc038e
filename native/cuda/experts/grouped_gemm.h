// Products of groups of rows, each with a w of its own: see grouped_gemm_sm90.cu.
#pragma once
#include <cstdint>

#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"
#include "cuda/gemm/large_gemm.h"

namespace inferd::cuda {

// y[i] = x[i] w_g^T for the rows i of each group g or, when `gated`, silu(x[i] w_g[0 .. n)^T) *
// (x[i] w_g[n .. 2 n)^T), in the 16-bit type.
struct GroupedGemmArgs {
  const void* x;  // [rows, k] packed, 16-byte aligned
  const void* w;  // [groups * w_step, k] packed: that of a group begins at row group * w_step
  void* y;        // [rows, n] packed
  int32_t rows;   // room for: tiles lie within
  int32_t groups, w_step;
  int32_t n, k;               // multiples of 8
  const GroupTile* tiles;     // device, [most_tiles]
  const int32_t* tile_count;  // device: how many there are
  int32_t most_tiles;
  bool gated;
};

// Compute capability 9.0 and sizes as above; else grouped_gemm() returns cudaErrorInvalidValue.
bool grouped_gemm_takes(const GroupedGemmArgs& args);
cudaError_t grouped_gemm(Half type, const GroupedGemmArgs& args, const Launch& launch);

}  // namespace inferd::cuda
