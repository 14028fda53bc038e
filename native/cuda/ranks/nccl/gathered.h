// What becomes of the parts of all ranks once they lie beside each other on a GPU, as NCCL gathers
// them. Raw device pointers; see gathered.cu.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/device/launch.h"
#include "cuda/ranks/collectives.h"

namespace inferd::cuda {

// Tells the host where the stream of a rank is: odd inside of a collective, even outside.
struct Progress {
  uint32_t* passed;  // memory of the device: begins and ends so far
  uint32_t* seen;    // host memory: the same
};

// A collective begins behind this. It ends where one of the kernels below begins.
cudaError_t note_begin(const Progress& progress, const Launch& launch);

// As collectives.h has all_reduce, of the parts [parts, count] at `x`, in their order.
cudaError_t sum_gathered(const Progress& progress, const SumArgs& args, int32_t parts,
                         int32_t sm_count, const Launch& launch);

// out [rows, parts * row_bytes] = gathered [parts, rows, row_bytes], row_bytes a multiple of 8.
struct Gathered {
  void* out;
  const void* gathered;
  int32_t parts;
  int64_t rows, row_bytes;
};
cudaError_t place_gathered(const Progress& progress, const Gathered& what, int32_t sm_count,
                           const Launch& launch);

}  // namespace inferd::cuda
