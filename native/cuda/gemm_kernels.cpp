// See gemm_kernels.h.
#include "gemm_kernels.h"

#include "large_gemm.h"
#include "small_gemm.h"

namespace inferd::cuda {
namespace {

int32_t small_variants(const GemmArgs& p) {
  return p.m <= kSmallGemmRows && p.k % 8 == 0 && p.x_stride % 8 == 0 ? 1 : 0;
}
cudaError_t run_small(const GemmArgs& p, int32_t, const GemmScratch&, const Launch& launch) {
  return small_gemm(p, launch);
}

// The step of 1024 rows of gemm_row_step(), whole: its products run as 1024 rows were measured.
// At 512 cuBLASLt was faster for every weight: too many multiprocessors have no tile.
constexpr int32_t kLargeRows = 769;

int32_t large_variants(const GemmArgs& p) {
  return p.m >= kLargeRows && large_gemm_takes(p) ? 1 : 0;
}
cudaError_t run_large(const GemmArgs& p, int32_t, const GemmScratch&, const Launch& launch) {
  return large_gemm(p, launch);
}

constexpr GemmKernel kKernels[] = {
    {"small", small_variants, run_small, kSmallGemmRows},
    {"large", large_variants, run_large, 0},
};

}  // namespace

std::span<const GemmKernel> gemm_kernels() { return kKernels; }

}  // namespace inferd::cuda
