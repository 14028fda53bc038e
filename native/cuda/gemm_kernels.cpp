// See gemm_kernels.h.
#include "gemm_kernels.h"

#include "small_gemm.h"

namespace inferd::cuda {
namespace {

int32_t small_variants(const GemmArgs& p) {
  return p.m <= kSmallGemmRows && p.k % 8 == 0 && p.x_stride % 8 == 0 ? 1 : 0;
}
cudaError_t run_small(const GemmArgs& p, int32_t, const GemmScratch&, const Launch& launch) {
  return small_gemm(p, launch);
}

// The first that takes a product computes it where nothing was measured.
constexpr GemmKernel kKernels[] = {
    {"small", small_variants, run_small},
};

}  // namespace

std::span<const GemmKernel> gemm_kernels() { return kKernels; }

}  // namespace inferd::cuda
