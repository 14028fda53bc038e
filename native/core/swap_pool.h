// The KV cache as arrays of blocks, and the host memory that keeps copies of blocks of preempted
// sequences. Made by the engine, read by the backends.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/plan/step_plan.h"

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

// Backend::swap_out and swap_in where the device is the host.
inline void swap_out_on_host(const SwapPool& pool, std::span<const BlockCopy> pairs) {
  char* host = static_cast<char*>(pool.host);
  for (const BlockArray& a : pool.arrays) {
    const char* device = static_cast<const char*>(a.base);
    const auto bytes = static_cast<size_t>(a.block_bytes);
    for (const BlockCopy& c : pairs)
      std::memcpy(host + c.dst * a.block_bytes, device + c.src * a.block_bytes, bytes);
    host += pool.num_blocks * a.block_bytes;
  }
}
inline void swap_in_on_host(const SwapPool& pool, std::span<const BlockCopy> pairs) {
  const char* host = static_cast<const char*>(pool.host);
  for (const BlockArray& a : pool.arrays) {
    char* device = static_cast<char*>(a.base);
    const auto bytes = static_cast<size_t>(a.block_bytes);
    for (const BlockCopy& c : pairs)
      std::memcpy(device + c.dst * a.block_bytes, host + c.src * a.block_bytes, bytes);
    host += pool.num_blocks * a.block_bytes;
  }
}

}  // namespace inferd
