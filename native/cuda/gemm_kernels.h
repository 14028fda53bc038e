// Our own products as the tuner sees them: a list of kernels, each with a few variants to measure
// beside cuBLASLt. A new kernel is one line in gemm_kernels.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "gemm_args.h"
#include "launch.h"

namespace inferd::cuda {

// Device memory that products of one stream share.
struct GemmScratch {
  int32_t* tickets;  // [kGemmTickets], zero between launches
  void* memory;      // undefined between launches, 256-byte aligned
  size_t bytes;      // of `memory`
};
constexpr int32_t kGemmTickets = 4096;

struct GemmKernel {
  const char* name;
  // How many ways it has to compute `args`; 0 when it cannot.
  int32_t (*variants)(const GemmArgs& args);
  // Enqueues variant 0 <= v < variants(args). Neither allocates nor waits.
  cudaError_t (*run)(const GemmArgs& args, int32_t variant, const GemmScratch& scratch,
                     const Launch& launch);
  int32_t unmeasured_rows;  // of products that it computes where nothing was measured
};

std::span<const GemmKernel> gemm_kernels();

}  // namespace inferd::cuda
