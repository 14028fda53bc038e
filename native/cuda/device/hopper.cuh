// Instructions of sm_90a, one function each: mbarriers, the tensor copy engine (TMA), wgmma.
// Empty on other architectures, where the kernels that use them are never launched.
#pragma once
#include <cuda.h>

#include "cuda/device/mma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define INFERD_HOPPER 1
#endif

namespace inferd::cuda {

#ifdef INFERD_HOPPER

// --- mbarrier: phase n completes after `count` arrivals and the expected bytes ---
__device__ inline void barrier_init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(count));
}
// Makes initialised barriers visible to the copy engine; a __syncthreads must follow.
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Returns when the phase of this parity is complete.
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again_%=;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// --- tensor copies into shared memory, counted by a barrier ---
__device__ inline void tensor_copy_3d(void* dst, const CUtensorMap* map, uint64_t* barrier, int x,
                                      int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(dst)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ inline void tensor_copy_4d(void* dst, const CUtensorMap* map, uint64_t* barrier, int x,
                                      int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(dst)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// Stores the transposes of two 8x8 matrices of 16-bit values, held as an accumulator is: lane l
// gives the address of row l % 8, once a column, of matrix l / 8 % 2.
__device__ inline void store_transposed2(void* row, uint32_t first, uint32_t second) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
      "r"(first), "r"(second)
      : "memory");
}

// Orders this thread's ordinary shared memory writes before later reads by wgmma.
__device__ inline void async_proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Barriers of some warps of a block, ids 1..15; 0 is __syncthreads. Completes when `kThreads` are
// here, those that only arrive and go on included.
template <int kThreads>
__device__ inline void group_sync(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ inline void group_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- wgmma ---
// Descriptor of a tile in the 128-byte swizzle, whose 1024-byte atoms are 8 rows of 64 values.
// `stride` is the distance of atoms along the rows; `leading` across them, for an operand whose
// fast dimension is not k (the others step through their columns themselves). The upper word is
// constant, so that stepping through a tile adds to the lower one only.
template <uint32_t kStride>
struct MatrixDescriptor {
  uint32_t low;

  __device__ explicit MatrixDescriptor(const void* p, uint32_t leading = 0)
      : low((shared_address(p) & 0x3ffff) >> 4 | leading >> 4 << 16) {}
  __device__ uint64_t at(uint32_t bytes) const {
    return uint64_t{1} << 62 | static_cast<uint64_t>(kStride >> 4) << 32 | (low + (bytes >> 4));
  }
};
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The operand lists of 32 and 64 accumulators: inline assembly has no other way to name them.
#define INFERD_D8(d, i)                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define INFERD_D32(d) INFERD_D8(d, 0), INFERD_D8(d, 8), INFERD_D8(d, 16), INFERD_D8(d, 24)
#define INFERD_D64(d) \
  INFERD_D32(d), INFERD_D8(d, 32), INFERD_D8(d, 40), INFERD_D8(d, 48), INFERD_D8(d, 56)
#define INFERD_NAMES32                                                                 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
  "%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define INFERD_NAMES64                                                                        \
  INFERD_NAMES32                                                                              \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53," \
  "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// Keeps the compiler from moving uses of d across: wgmma writes registers behind its back.
__device__ inline void hold(float (&d)[32]) { asm volatile("" : INFERD_D32(d)::"memory"); }
__device__ inline void hold(float (&d)[64]) { asm volatile("" : INFERD_D64(d)::"memory"); }

// d[64 x 128] = a[64 x 16] b[16 x 128] (+ d when `add`), both from shared memory, k contiguous.
#define INFERD_WGMMA_SS(TYPES)                                                 \
  asm volatile(                                                                \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"                         \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " {" INFERD_NAMES64 \
      "}, %64, %65, add, 1, 1, 0, 0;\n}"                                       \
      : INFERD_D64(d)                                                          \
      : "l"(a), "l"(b), "r"(add))
template <typename T>
__device__ inline void wgmma_shared(float (&d)[64], uint64_t a, uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __half>) {
    INFERD_WGMMA_SS("f16.f16");
  } else {
    INFERD_WGMMA_SS("bf16.bf16");
  }
}

// d[64 x n] = a[64 x 16] b[16 x n] (+ d when `add`) of few columns, both from shared memory; b with
// k contiguous, a too, or with its rows where kRowsContiguous.
#define INFERD_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define INFERD_D16(d) INFERD_D8(d, 0), INFERD_D8(d, 8)
#define INFERD_NAMES4 "%0,%1,%2,%3"
#define INFERD_NAMES8 INFERD_NAMES4 ",%4,%5,%6,%7"
#define INFERD_NAMES16 INFERD_NAMES8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define INFERD_WGMMA_FEW(SHAPE, TYPES, NAMES, A, B, ADD, ROWS, D)                                 \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" ADD                                       \
               ", 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned." SHAPE "k16.f32." TYPES " {" NAMES "}, %" A ", %" B \
               ", add, 1, 1, %" ROWS ", 0;\n}"                                                    \
               : D                                                                                \
               : "l"(a), "l"(b), "r"(add), "n"(kRowsContiguous ? 1 : 0))
#define INFERD_WGMMA_FEW8(TYPES) \
  INFERD_WGMMA_FEW("m64n8", TYPES, INFERD_NAMES4, "4", "5", "6", "7", INFERD_D4(d, 0))
#define INFERD_WGMMA_FEW16(TYPES) \
  INFERD_WGMMA_FEW("m64n16", TYPES, INFERD_NAMES8, "8", "9", "10", "11", INFERD_D8(d, 0))
#define INFERD_WGMMA_FEW32(TYPES) \
  INFERD_WGMMA_FEW("m64n32", TYPES, INFERD_NAMES16, "16", "17", "18", "19", INFERD_D16(d))
#define INFERD_WGMMA_FEW64(TYPES) \
  INFERD_WGMMA_FEW("m64n64", TYPES, INFERD_NAMES32, "32", "33", "34", "35", INFERD_D32(d))
template <typename T, bool kRowsContiguous, int kCount>
__device__ inline void wgmma_few(float (&d)[kCount], uint64_t a, uint64_t b, int add) {
  static_assert(kCount == 4 || kCount == 8 || kCount == 16 || kCount == 32);
  constexpr bool kF16 = std::is_same_v<T, __half>;
  if constexpr (kCount == 4 && kF16) {
    INFERD_WGMMA_FEW8("f16.f16");
  } else if constexpr (kCount == 4) {
    INFERD_WGMMA_FEW8("bf16.bf16");
  } else if constexpr (kCount == 8 && kF16) {
    INFERD_WGMMA_FEW16("f16.f16");
  } else if constexpr (kCount == 8) {
    INFERD_WGMMA_FEW16("bf16.bf16");
  } else if constexpr (kCount == 16 && kF16) {
    INFERD_WGMMA_FEW32("f16.f16");
  } else if constexpr (kCount == 16) {
    INFERD_WGMMA_FEW32("bf16.bf16");
  } else if constexpr (kF16) {
    INFERD_WGMMA_FEW64("f16.f16");
  } else {
    INFERD_WGMMA_FEW64("bf16.bf16");
  }
}

// d[64 x n] += a[64 x 16] b[16 x n], a from registers, b in shared memory with n contiguous.
#define INFERD_WGMMA_RS(SHAPE, TYPES, NAMES, A, D)                                        \
  asm volatile("wgmma.mma_async.sync.aligned." SHAPE "k16.f32." TYPES " {" NAMES "}, {" A \
               ", 1, 1, 1, 1;"                                                            \
               : D                                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define INFERD_WGMMA_RS64(TYPES) \
  INFERD_WGMMA_RS("m64n64", TYPES, INFERD_NAMES32, "%32,%33,%34,%35}, %36", INFERD_D32(d))
#define INFERD_WGMMA_RS128(TYPES) \
  INFERD_WGMMA_RS("m64n128", TYPES, INFERD_NAMES64, "%64,%65,%66,%67}, %68", INFERD_D64(d))
template <typename T, int kCount>
__device__ inline void wgmma_registers(float (&d)[kCount], const uint32_t* a, uint64_t b) {
  static_assert(kCount == 32 || kCount == 64);
  if constexpr (kCount == 32 && std::is_same_v<T, __half>) {
    INFERD_WGMMA_RS64("f16.f16");
  } else if constexpr (kCount == 32) {
    INFERD_WGMMA_RS64("bf16.bf16");
  } else if constexpr (std::is_same_v<T, __half>) {
    INFERD_WGMMA_RS128("f16.f16");
  } else {
    INFERD_WGMMA_RS128("bf16.bf16");
  }
}

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
