// The KV cache as arrays of blocks, and the host memory that keeps copies of blocks of preempted
// sequences. Made by the engine, read by the backends.
#pragma once
#include <cstdint>
#include <vector>

namespace inferd {

// One array of the cache on the device: [num_blocks, block_bytes].
struct BlockArray {
  void* base;
  int64_t block_bytes;
};

struct SwapPool {
  std::vector<BlockArray> arrays;  // a block is a piece of each
  void* host = nullptr;            // num_blocks * block_bytes(), laid out as the backend likes
  int32_t num_blocks = 0;          // of the host; 0: there is no swap space

  int64_t block_bytes() const {
    int64_t bytes = 0;
    for (const BlockArray& a : arrays) bytes += a.block_bytes;
    return bytes;
  }
};

}  // namespace inferd
