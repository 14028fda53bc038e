// The linear layer for many rows on Hopper: see large_gemm_sm90.cu.
#pragma once
#include "gemm_args.h"
#include "launch.h"

namespace inferd::cuda {

// Whether large_gemm() computes `args` on the current device: compute capability 9.0; 16-bit y; n,
// k and the strides multiples of 8; x, w and y 16-byte aligned; m, n and k positive.
bool large_gemm_takes(const GemmArgs& args);

// Ways to compute a shape that is taken, to be measured: 0 .. large_gemm_variants() - 1. Which is
// fastest depends on m, n and k; all give the same bits.
int32_t large_gemm_variants(const GemmArgs& args);
// What a variant is, for reports: "128x256, cluster of 2".
const char* large_gemm_variant_name(int32_t variant);

// Enqueues on the current device. cudaErrorInvalidValue unless args are as above. Neither allocates
// nor waits; needs no scratch (args.scratch is not used). With launch.early the first weights are
// fetched while the kernel ahead still runs.
cudaError_t large_gemm(const GemmArgs& args, int32_t variant, const Launch& launch);

}  // namespace inferd::cuda
