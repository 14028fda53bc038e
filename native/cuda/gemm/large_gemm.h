// The linear layers for many rows on Hopper: see large_gemm_sm90.cu, and batch/batch_gemm_sm90.cu
// for full decode batches and short prompts. Host code, any thread.
#pragma once
#include <cstdint>
#include <span>

#include "cuda/device/launch.h"
#include "cuda/gemm/gemm_args.h"

namespace inferd::cuda {

// Whether large_gemm() computes `args` on the current device: compute capability 9.0; 16-bit y;
// plain weights, or e4m3 codes on both sides, k then a multiple of 16; n, k and the strides
// multiples of 8; x, w and y 16-byte aligned; m, n and k positive; no norm_x.
bool large_gemm_takes(const GemmArgs& args);

// Enqueues on the current device. cudaErrorInvalidValue unless args are as above. Neither allocates
// nor waits; needs no scratch (args.scratch is not used). With launch.early the first weights are
// fetched while the kernel ahead still runs.
cudaError_t large_gemm(const GemmArgs& args, const Launch& launch);
// Its part for e4m3 codes.
cudaError_t large_gemm_codes(const GemmArgs& args, const Launch& launch);

// The same for up to so many rows. Whether batch_gemm() computes `args` on the current device: as
// above, of plain weights alone, and no gated product with `add_to_y`.
constexpr int32_t kBatchGemmRows = 256;
bool batch_gemm_takes(const GemmArgs& args);

// How a product is cut: one way to compute it.
struct BatchGemmCut {
  int32_t columns;  // rows of w that a block multiplies at a time; half gate, half up when gated
  int32_t splits;   // blocks that share the k of a tile; 1: none do
};

// Writes the most promising cuts, best first, and returns how many. Each also serves fewer rows.
// Those that split use `spare` and `tickets` of `args`.
int32_t batch_gemm_cuts(const GemmArgs& args, std::span<BatchGemmCut> best);

// Enqueues. cudaErrorInvalidValue for a shape that is not taken or a cut that is none of its own.
// The same bits run to run.
cudaError_t batch_gemm(const GemmArgs& args, const BatchGemmCut& cut, const Launch& launch);

// Of products of groups of rows, each with a w of its own (experts/grouped_gemm.h):
// rows [row, end) of x and y, at most kGroupTileRows, of one group.
struct GroupTile {
  int32_t row, end, group;
};
constexpr int32_t kGroupTileRows = 256;
// `row` of a group's tiles are multiples of it, and y is written up to the next one after `end`.
constexpr int32_t kGroupRowStep = 16;

}  // namespace inferd::cuda
