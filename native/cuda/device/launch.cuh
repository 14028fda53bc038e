// How kernels of this folder are put on a stream: thread block clusters and early starts.
//
// Early start (programmatic dependent launch, compute capability 9.0 and later): a kernel may begin
// while the kernel before it on the stream still runs, once all blocks of that one have begun and
// called let_next_start(), or ended. Rules that keep this safe in any chain:
//  - before wait_for_previous() a kernel touches only memory that no kernel writes (weights), or
//    that is settled: written before a kernel that calls let_next_start() only after its own wait.
//    Whatever starts after such a kernel knows that all before it is complete. Attention is one,
//    so that from the second layer on, the step's tables and the keys of earlier steps are settled.
//    They are read past L1 (ld.cg, cp.async.cg), and the first launch of a step that reads them so
//    starts plainly;
//  - every block calls wait_for_previous(), so that the end of a kernel also means the end of all
//    before it. let_next_start() then may come at any time, best at once: what follows fetches its
//    weights in the tail of what goes before;
//  - what a kernel wrote is read by plain loads, never as read-only data (ld.global.nc, which a
//    const __restrict__ pointer allows): those may be served from lines older than the wait;
//  - without Launch::early, and on older devices, both calls do nothing.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "cuda/device/launch.h"

namespace inferd::cuda {

// Returns when the kernels before this one are complete and what they wrote can be read.
__device__ inline void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel begin once every block has said so or ended.
__device__ inline void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct LaunchShape {
  dim3 grid;
  int threads;
  size_t shared_bytes = 0;
  int cluster = 1;  // blocks along x that share a cluster; above 1 needs compute capability 9.0
};

template <typename... Params, typename... Args>
cudaError_t launch_kernel(void (*kernel)(Params...), const LaunchShape& shape, const Launch& launch,
                          Args&&... args) {
  if (shape.shared_bytes > 32 * 1024) {  // the limit of 48 KB counts static memory too
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (launch.early && INFERD_MOST_MAJOR >= 9) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(shape.cluster);
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = launch.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

}  // namespace inferd::cuda
