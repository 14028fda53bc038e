// Instructions of sm_90a for thread block clusters, tensor stores and wide products: barriers and
// copies that reach the other blocks of a cluster, copies out of shared memory, and wgmma of 256
// columns. Beside hopper.cuh.
#pragma once
#include "hopper.cuh"

namespace inferd::cuda {

#ifdef INFERD_HOPPER

// --- clusters ---
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Returns when every thread of the cluster that has not ended is here; what they wrote to shared
// memory before is then visible to all.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
// Arrives at the barrier that block `rank` has where this block has `barrier`. Orders nothing of
// global memory: .release.cluster would, with a fence of a microsecond.
__device__ inline void barrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// --- what L2 does with lines that a copy touches, beside l2_first(): evict them last, or in turn
// ---
__device__ inline uint64_t l2_last() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline uint64_t l2_normal() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// --- tensor copies ---
__device__ inline void tensor_copy_2d(void* dst, const CUtensorMap* map, uint64_t* barrier, int x,
                                      int y, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(dst)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "l"(policy)
      : "memory");
}
// One read for all blocks in `blocks` (a bit each): the box comes to the same place in each, and
// counts at each one's own barrier.
__device__ inline void tensor_copy_2d_all(void* dst, const CUtensorMap* map, uint64_t* barrier,
                                          int x, int y, uint16_t blocks, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(
          shared_address(dst)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"(blocks), "l"(policy)
      : "memory");
}

// --- tensor copies out of shared memory ---
// What was written to `src` needs an async_proxy_fence() of its writers first; parts of the box
// outside of the tensor are left out.
__device__ inline void tensor_store_2d(const CUtensorMap* map, const void* src, int x, int y,
                                       uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint "
      "[%0, {%2, %3}], [%1], %4;" ::"l"(map),
      "r"(shared_address(src)), "r"(x), "r"(y), "l"(policy)
      : "memory");
}
__device__ inline void tensor_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Returns when this thread's stores have read their shared memory.
__device__ inline void tensor_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Four 8x8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void store_matrix4(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}

// --- wgmma of 256 columns ---
#define INFERD_D128(d)                                                                   \
  INFERD_D64(d), INFERD_D8(d, 64), INFERD_D8(d, 72), INFERD_D8(d, 80), INFERD_D8(d, 88), \
      INFERD_D8(d, 96), INFERD_D8(d, 104), INFERD_D8(d, 112), INFERD_D8(d, 120)
#define INFERD_NAMES128                                                                       \
  INFERD_NAMES64                                                                              \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85," \
  "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,"    \
  "%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,"     \
  "%123,%124,%125,%126,%127"

__device__ inline void hold(float (&d)[128]) { asm volatile("" : INFERD_D128(d)::"memory"); }

// d[64 x 256] = a[64 x 16] b[16 x 256] (+ d when `add`), both from shared memory, k contiguous.
#define INFERD_WGMMA_SS256(TYPES)                                               \
  asm volatile(                                                                 \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"                         \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPES " {" INFERD_NAMES128 \
      "}, %128, %129, add, 1, 1, 0, 0;\n}"                                      \
      : INFERD_D128(d)                                                          \
      : "l"(a), "l"(b), "r"(add))
template <typename T>
__device__ inline void wgmma_shared(float (&d)[128], uint64_t a, uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __half>) {
    INFERD_WGMMA_SS256("f16.f16");
  } else {
    INFERD_WGMMA_SS256("bf16.bf16");
  }
}

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
