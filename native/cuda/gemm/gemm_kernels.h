// Our own products as the tuner sees them: a list of kernels, each with a few variants to measure
// beside cuBLASLt. A new kernel is one line in gemm_kernels.cpp, and says itself which formats of
// weights it takes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/device/launch.h"
#include "cuda/gemm/gemm_args.h"

namespace inferd::cuda {

// One way of a kernel to compute a shape, in the kernel's own words. It also serves fewer rows.
using GemmVariant = std::array<int32_t, 8>;
constexpr size_t kGemmVariants = 6;

struct GemmKernel {
  const char* name;
  bool (*takes)(const GemmArgs& args);  // with norm_x: then any variant will do
  // Writes ways to compute `args`, which it takes, and returns how many. At start-up only.
  size_t (*variants)(const GemmArgs& args, std::span<GemmVariant, kGemmVariants> out);
  // Enqueues. Neither allocates nor waits.
  cudaError_t (*run)(const GemmArgs& args, const GemmVariant& variant, const Launch& launch);
  int32_t unmeasured_rows;  // of products that it computes where nothing was measured
};

std::span<const GemmKernel> gemm_kernels();

// Null when none takes `args`.
inline const GemmKernel* first_kernel(const GemmArgs& args) {
  for (const GemmKernel& kernel : gemm_kernels())
    if (kernel.takes(args)) return &kernel;
  return nullptr;
}

}  // namespace inferd::cuda
