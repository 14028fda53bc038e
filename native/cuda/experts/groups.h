// The pairs of tokens and experts as groups of rows, for many tokens an expert: see groups.cu.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/experts.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"
#include "cuda/experts/grouped_gemm.h"

namespace inferd::cuda {

// Pairs [first, first + count) in the order of Routing::pairs, or those of them that there are, as
// rows: that of the pair at place p of the e-th expert held is p + shifts[e]. Experts begin at
// multiples of kGroupRowStep, so that there are up to kGroupRowStep - 1 more rows an expert.
struct ExpertRows {
  Routing routing;
  int32_t first_held, held, chosen;
  int32_t first, count;
  // Device memory of expert_row_bytes(), written by plan_expert_rows().
  GroupTile* tiles = nullptr;
  int32_t* tile_count = nullptr;
  int32_t* shifts = nullptr;

  int32_t rows() const { return count + held * (kGroupRowStep - 1); }
  int32_t most_tiles() const { return count / kGroupTileRows + held; }
};

// Sets the device pointers of `rows`, whose other members are set, within `memory`.
void place_expert_rows(ExpertRows& rows, void* memory);
size_t expert_row_bytes(const ExpertRows& rows);

cudaError_t plan_expert_rows(const ExpertRows& rows, const Launch& launch);

// out[row] = x[token] of every pair: 16-bit values, `cols` a multiple of 8, rows 16-byte aligned.
cudaError_t gather_expert_rows(const ExpertRows& rows, const void* x, int64_t x_stride, void* out,
                               int32_t cols, const Launch& launch);

// As sum_experts(), of downs in the 16-bit type in rows.
struct ExpertRowSum {
  float* sums;        // [tokens, cols]
  void* out;          // [tokens, cols], packed
  const void* downs;  // [rows, cols]
  int32_t tokens, cols;
  bool starts, ends, adds;
};
cudaError_t sum_expert_rows(Half type, const ExpertRows& rows, const ExpertRowSum& sum,
                            const Launch& launch);

}  // namespace inferd::cuda
