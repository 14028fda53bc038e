// The linear layer for few rows: streams the weights once at memory speed; see small_gemm.cu.
#pragma once
#include "cuda/device/launch.h"
#include "cuda/gemm/gemm_args.h"

namespace inferd::cuda {

constexpr int32_t kSmallGemmRows = 16;
// Up to so many columns of x are read once a block, where a block may have 163 KB of shared memory.
constexpr int32_t kSmallGemmHeldColumns = 4096;

// cudaErrorInvalidValue unless 1 <= m <= kSmallGemmRows, k and x_stride are multiples of 8 and n is
// positive. With launch.early the first weights are fetched while the kernel ahead still runs.
cudaError_t small_gemm(const GemmArgs& args, const Launch& launch);

// The same of 8-bit weights with scales: see codes/small_gemm_codes.cu.
bool small_gemm_codes_takes(const GemmArgs& args);
cudaError_t small_gemm_codes(const GemmArgs& args, const Launch& launch);

// The same for up to so many rows: see few/codes_few_gemm.cu.
constexpr int32_t kFewRows = 4;
bool codes_few_takes(const GemmArgs& args);
cudaError_t codes_few_gemm(const GemmArgs& args, const Launch& launch);

// The same of weights of codes in tiles, for any number of rows, kCodedSmallRows at a time, and
// norm_x only up to so many: see tiles/coded_small_gemm.cu.
constexpr int32_t kCodedSmallRows = 16;
bool coded_small_takes(const GemmArgs& args);
cudaError_t coded_small_gemm(const GemmArgs& args, const Launch& launch);

// The same for up to kFewRows, of weights that are not rounded: see few/coded_few_gemm.cu.
bool coded_few_takes(const GemmArgs& args);
cudaError_t coded_few_gemm(const GemmArgs& args, const Launch& launch);

}  // namespace inferd::cuda
