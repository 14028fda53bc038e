// The linear layer for decode batches on Hopper: streams the weights once through the tensor cores;
// see stream_gemm_sm90.cu. Host code, any thread. Needs no memory of its own.
#pragma once
#include <span>

#include "cuda/device/launch.h"
#include "cuda/gemm/gemm_args.h"

namespace inferd::cuda {

constexpr int32_t kStreamGemmRows = 128;
constexpr int32_t kStreamGemmCuts = 6;  // worth measuring for one shape

// How a product is cut into blocks and clusters of blocks: one way to compute it.
struct StreamGemmCut {
  int32_t groups;    // of 64 tokens, a warpgroup each: 1 or 2
  int32_t columns;   // rows of w a block multiplies at a time; half gate, half up when gated
  int32_t across;    // blocks of a cluster side by side along n: share their tokens
  int32_t down;      // along m: share their weights; together they hold all tokens
  int32_t splits;    // along k: add up in shared memory of each other
  bool halved;       // takes half of a multiprocessor's memory: two blocks, or the next kernel's
  int32_t resident;  // clusters of that size that run at a time on the device
};

// The current device is of compute capability 9.0 and has a kernel for the shape: 1 <= m <=
// kStreamGemmRows; plain weights, k and x_stride multiples of 8, or e4m3 codes on both sides, k a
// multiple of 16; a gated product of 16-bit y without `add_to_y`;
// no norm_x.
bool stream_gemm_takes(const GemmArgs& args);

// Writes the most promising cuts for the shape, best first by a model of the machine, and returns
// how many. Each also serves any fewer rows, other strides and other epilogues of the same `gated`.
int32_t stream_gemm_cuts(const GemmArgs& args, std::span<StreamGemmCut> best);

// cudaErrorInvalidValue for a shape that is not taken or that the cut does not hold. With
// launch.early the first weights are fetched while the kernel ahead still runs. The same bits run
// to run.
cudaError_t stream_gemm(const GemmArgs& args, const StreamGemmCut& cut, const Launch& launch);

// How a product by codes in tiles is cut: see tiles/coded_stream_gemm_sm90.cu.
struct CodedCut {
  int32_t row_blocks = 0;  // of 64 rows of the weight that a warpgroup has; 0: not chosen
  int32_t splits = 0;      // of k
};
constexpr int32_t kCodedCuts = 6;

// The same as above, of weights of codes in tiles and any number of rows. A cut that was not
// chosen, or does not fit, is chosen anew.
bool coded_stream_takes(const GemmArgs& args);
int32_t coded_stream_cuts(const GemmArgs& args, std::span<CodedCut> best);
cudaError_t coded_stream_gemm(const GemmArgs& args, const CodedCut& cut, const Launch& launch);

}  // namespace inferd::cuda
