// Copies to a warp's own queue of codes, and barriers of some warps of a block.
#pragma once
#include "cuda/device/common.cuh"

namespace inferd::cuda {

// 16 bytes that are read once, to shared memory.
__device__ inline void stream16(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global)
               : "memory");
}

// Barriers of some warps of the block, ids 1..15. One completes when `warps` are here, those that
// only arrive and go on included. Not mbarriers: tools that look for races follow the one and not
// the other.
__device__ inline void warps_sync(int id, int warps) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(warps * kWarp) : "memory");
}
__device__ inline void warps_arrive(int id, int warps) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(warps * kWarp) : "memory");
}

}  // namespace inferd::cuda
