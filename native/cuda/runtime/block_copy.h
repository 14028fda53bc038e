// Copies of KV blocks: copy-on-write on the device, and swap to and from pinned host memory. Raw
// pointers; see block_copy.cu.
#pragma once
#include <cstdint>

#include "core/plan/step_plan.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

// All caches of a rank: keys and values of every layer, `num_bases` arrays of blocks.
struct BlockArrays {
  void* const* bases;   // [num_bases] device array of device pointers, each 16-byte aligned
  int32_t num_bases;    // 2 * layers
  int64_t block_bytes;  // bytes of a block in one of them, a multiple of 16
};

// For each base, in order: block pairs[i].dst = block pairs[i].src. `pairs` [count] is device
// memory. A copy may read what one before it wrote.
cudaError_t copy_blocks(const BlockArrays& arrays, const BlockCopy* pairs, int32_t count,
                        const Launch& launch);

// Host pool: [host blocks, num_bases, block_bytes], pinned, addressable by the device. Moves device
// block pairs[i].src to host block pairs[i].dst (swap_out), or host block pairs[i].src to device
// block pairs[i].dst (swap_in). `pairs` [count] is device memory, blocks distinct. Uses few
// multiprocessors, so that it can run beside a step on a stream of its own.
cudaError_t swap_out(const BlockArrays& arrays, void* host_pool, const BlockCopy* pairs,
                     int32_t count, cudaStream_t stream);
cudaError_t swap_in(const BlockArrays& arrays, const void* host_pool, const BlockCopy* pairs,
                    int32_t count, cudaStream_t stream);

}  // namespace inferd::cuda
