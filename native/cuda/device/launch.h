// Where and how a launcher of this folder puts its kernel. A plain stream converts to it.
#pragma once
#include <cuda_runtime.h>

// Host code uses features of the device up to this major compute capability. Builds whose kernels
// are compiled for older devices only, to test that code on newer ones, say so here.
#ifndef INFERD_MOST_MAJOR
#define INFERD_MOST_MAJOR 99
#endif

namespace inferd::cuda {

struct Launch {
  // `early`: the kernel may begin before the one ahead of it on the stream has ended; it waits by
  // itself before it reads anything a kernel wrote. Only on compute capability 9.0 and later.
  Launch(cudaStream_t on, bool start_early = false) : stream(on), early(start_early) {}

  cudaStream_t stream;
  bool early;
};

}  // namespace inferd::cuda
