// Instructions of sm_90a for thread block clusters, tensor stores and products of other widths:
// barriers, copies and stores that reach the other blocks of a cluster, copies out of shared
// memory, and wgmma of 48 to 256 columns. Beside hopper.cuh.
#pragma once
#include "cuda/device/hopper.cuh"

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
// Publishes no writes (a release for the cluster would wait for all of memory, a microsecond).
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// Address, in the cluster's window, of what lies at `p` in the block of this rank.
__device__ inline uint32_t cluster_address(const void* p, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(p)), "r"(rank));
  return address;
}

// --- barriers and shared memory of other blocks of the cluster ---
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
// Says that this thread reads no more. A release for the cluster would be a fence of all memory.
__device__ inline void cluster_barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Sends 16 bytes to a block of the cluster, which counts them on its `barrier`. Both are cluster
// addresses.
__device__ inline void cluster_send4(uint32_t address, const float* v, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier)
      : "memory");
}
// As barrier_wait, for bytes that other blocks of the cluster sent.
__device__ inline void barrier_wait_cluster(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again_%=;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// --- what L2 does, beside l2_first(), with lines that a copy touches: evict them last, in turn ---
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
__device__ inline void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
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
// Copies a box to the same place in every block of `mask` (bits are ranks) and counts its bytes on
// each one's `barrier`. A mask of 0 means this block alone.
__device__ inline void tensor_copy_2d(void* dst, const CUtensorMap* map, uint64_t* barrier, int x,
                                      int y, uint16_t mask, uint64_t policy) {
  if (mask == 0) {
    tensor_copy_2d(dst, map, barrier, x, y, policy);
  } else {
    tensor_copy_2d_all(dst, map, barrier, x, y, mask, policy);
  }
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

// --- wgmma ---
// As hold() of hopper.cuh, for any multiple of 8.
template <int kCount>
__device__ inline void hold_all(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 8) asm volatile("" : INFERD_D8(d, i)::"memory");
}

// Operand lists of n accumulators, in steps of 8.
#define INFERD_SUMS16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define INFERD_IN_OUT16(d) INFERD_D8(d, 0), INFERD_D8(d, 8)
#define INFERD_SUMS24 INFERD_SUMS16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define INFERD_IN_OUT24(d) INFERD_IN_OUT16(d), INFERD_D8(d, 16)
#define INFERD_SUMS32 INFERD_SUMS24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define INFERD_IN_OUT32(d) INFERD_IN_OUT24(d), INFERD_D8(d, 24)
#define INFERD_SUMS40 INFERD_SUMS32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define INFERD_IN_OUT40(d) INFERD_IN_OUT32(d), INFERD_D8(d, 32)
#define INFERD_SUMS48 INFERD_SUMS40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define INFERD_IN_OUT48(d) INFERD_IN_OUT40(d), INFERD_D8(d, 40)
#define INFERD_SUMS56 INFERD_SUMS48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define INFERD_IN_OUT56(d) INFERD_IN_OUT48(d), INFERD_D8(d, 48)
#define INFERD_SUMS64 INFERD_SUMS56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define INFERD_IN_OUT64(d) INFERD_IN_OUT56(d), INFERD_D8(d, 56)
#define INFERD_SUMS72 INFERD_SUMS64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define INFERD_IN_OUT72(d) INFERD_IN_OUT64(d), INFERD_D8(d, 64)
#define INFERD_SUMS80 INFERD_SUMS72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define INFERD_IN_OUT80(d) INFERD_IN_OUT72(d), INFERD_D8(d, 72)
#define INFERD_SUMS88 INFERD_SUMS80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define INFERD_IN_OUT88(d) INFERD_IN_OUT80(d), INFERD_D8(d, 80)
#define INFERD_SUMS96 INFERD_SUMS88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define INFERD_IN_OUT96(d) INFERD_IN_OUT88(d), INFERD_D8(d, 88)
#define INFERD_SUMS104 INFERD_SUMS96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define INFERD_IN_OUT104(d) INFERD_IN_OUT96(d), INFERD_D8(d, 96)
#define INFERD_SUMS112 INFERD_SUMS104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define INFERD_IN_OUT112(d) INFERD_IN_OUT104(d), INFERD_D8(d, 104)
#define INFERD_SUMS120 INFERD_SUMS112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define INFERD_IN_OUT120(d) INFERD_IN_OUT112(d), INFERD_D8(d, 112)
#define INFERD_SUMS128 INFERD_SUMS120 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define INFERD_IN_OUT128(d) INFERD_IN_OUT120(d), INFERD_D8(d, 120)

// hold() of hopper.cuh for 128 sums; in one piece, since hold_all() gave the compiler another
// order.
__device__ inline void hold(float (&d)[128]) { asm volatile("" : INFERD_IN_OUT128(d)::"memory"); }

// One case of wgmma_wide; A, B and ADD name the three operands behind the accumulators.
#define INFERD_WGMMA_WIDE(N, TYPES, COUNT, A, B, ADD)                                          \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD                                   \
               ", 0;\n"                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES " {" INFERD_SUMS##COUNT \
               "}, %" #A ", %" #B ", add, 1, 1, 0, 0;\n}"                                      \
               : INFERD_IN_OUT##COUNT(d)                                                       \
               : "l"(a), "l"(b), "r"(add))
#define INFERD_WGMMA_WIDTHS(TYPES)                            \
  if constexpr (kCount == 24) {                               \
    INFERD_WGMMA_WIDE(48, TYPES, 24, 24, 25, 26);             \
  } else if constexpr (kCount == 32) {                        \
    INFERD_WGMMA_WIDE(64, TYPES, 32, 32, 33, 34);             \
  } else if constexpr (kCount == 40) {                        \
    INFERD_WGMMA_WIDE(80, TYPES, 40, 40, 41, 42);             \
  } else if constexpr (kCount == 48) {                        \
    INFERD_WGMMA_WIDE(96, TYPES, 48, 48, 49, 50);             \
  } else if constexpr (kCount == 56) {                        \
    INFERD_WGMMA_WIDE(112, TYPES, 56, 56, 57, 58);            \
  } else if constexpr (kCount == 64) {                        \
    INFERD_WGMMA_WIDE(128, TYPES, 64, 64, 65, 66);            \
  } else if constexpr (kCount == 72) {                        \
    INFERD_WGMMA_WIDE(144, TYPES, 72, 72, 73, 74);            \
  } else if constexpr (kCount == 80) {                        \
    INFERD_WGMMA_WIDE(160, TYPES, 80, 80, 81, 82);            \
  } else if constexpr (kCount == 96) {                        \
    INFERD_WGMMA_WIDE(192, TYPES, 96, 96, 97, 98);            \
  } else if constexpr (kCount == 104) {                       \
    INFERD_WGMMA_WIDE(208, TYPES, 104, 104, 105, 106);        \
  } else if constexpr (kCount == 112) {                       \
    INFERD_WGMMA_WIDE(224, TYPES, 112, 112, 113, 114);        \
  } else {                                                    \
    static_assert(kCount == 128, "no other width is in use"); \
    INFERD_WGMMA_WIDE(256, TYPES, 128, 128, 129, 130);        \
  }

// The same of e4m3 numbers: d[64 x 2 kCount] = a[64 x 32] b[32 x 2 kCount] (+ d when `add`). Sums
// keep fewer bits than f32 has: those of long rows are added up outside.
#define INFERD_WGMMA_FLOAT8(N, COUNT, A, B, ADD)                                               \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD                                   \
               ", 0;\n"                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" INFERD_SUMS##COUNT \
               "}, %" #A ", %" #B ", add, 1, 1;\n}"                                            \
               : INFERD_IN_OUT##COUNT(d)                                                       \
               : "l"(a), "l"(b), "r"(add))
template <int kCount>
__device__ inline void wgmma_float8(float (&d)[kCount], uint64_t a, uint64_t b, int add) {
  if constexpr (kCount == 24) {
    INFERD_WGMMA_FLOAT8(48, 24, 24, 25, 26);
  } else if constexpr (kCount == 32) {
    INFERD_WGMMA_FLOAT8(64, 32, 32, 33, 34);
  } else if constexpr (kCount == 40) {
    INFERD_WGMMA_FLOAT8(80, 40, 40, 41, 42);
  } else if constexpr (kCount == 48) {
    INFERD_WGMMA_FLOAT8(96, 48, 48, 49, 50);
  } else if constexpr (kCount == 56) {
    INFERD_WGMMA_FLOAT8(112, 56, 56, 57, 58);
  } else {
    static_assert(kCount == 64, "no other width is in use");
    INFERD_WGMMA_FLOAT8(128, 64, 64, 65, 66);
  }
}

// d[64 x 2 kCount] = a[64 x 16] b[16 x 2 kCount] (+ d when `add`), both from shared memory, k
// contiguous.
template <typename T, int kCount>
__device__ inline void wgmma_wide(float (&d)[kCount], uint64_t a, uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __half>) {
    INFERD_WGMMA_WIDTHS("f16.f16")
  } else {
    INFERD_WGMMA_WIDTHS("bf16.bf16")
  }
}

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
