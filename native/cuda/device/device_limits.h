// What the device in use offers a kernel that sizes itself by it.
#pragma once
#include <cuda_runtime.h>

namespace inferd::cuda {

struct DeviceLimits {
  int multiprocessors = 0;
  int most_shared = 0;  // bytes of shared memory that a block may have
};

inline cudaError_t ask_limits(DeviceLimits& limits) {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&limits.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(&limits.most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                device);
}

}  // namespace inferd::cuda
