// The kernel behind the read limit of benchmarks, which also empties the second-level cache.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device/launch.h"

namespace inferd::cuda {

// Reads `bytes` bytes at `p` (16-byte aligned; a rest below 16 is left out) and writes nothing but,
// once in 2^32 cases, `out` [1].
cudaError_t read_all(const void* p, size_t bytes, uint32_t* out, const Launch& launch);

}  // namespace inferd::cuda
