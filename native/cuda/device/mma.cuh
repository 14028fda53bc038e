// Tensor core and asynchronous copy instructions of sm_80 and later, one function each.
//
// Fragments of mma.m16n8k16, lane = 4 g + t (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//   A (16 x 16, row major)   a0: row g,     columns 2t, 2t+1     a2: row g,     columns 2t+8, 2t+9
//                            a1: row g + 8, columns 2t, 2t+1     a3: row g + 8, columns 2t+8, 2t+9
//   B (16 x 8)               b0: rows 2t, 2t+1 of column g       b1: rows 2t+8, 2t+9 of column g
//   C (16 x 8, f32)          c0, c1: row g, columns 2t, 2t+1     c2, c3: row g + 8
#pragma once
#include "cuda/device/common.cuh"

namespace inferd::cuda {

template <typename T>
__device__ inline void mma16816(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Four 8x8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void ldmatrix4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void ldmatrix4_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// Turns four lanes' pairs of columns into 16 neighbouring bytes a lane: word i of lane t goes to
// word t of lane i (within a quad).
__device__ inline void transpose_quad(uint32_t (&w)[4], int t) {
  const bool odd = t & 1, high = t & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {  // swap w[i + 1] of even lanes with w[i] of odd ones
    const uint32_t other = __shfl_xor_sync(kFullWarp, odd ? w[i] : w[i + 1], 1);
    (odd ? w[i] : w[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t other = __shfl_xor_sync(kFullWarp, high ? w[i] : w[i + 2], 2);
    (high ? w[i] : w[i + 2]) = other;
  }
}

// Copies 16 bytes to shared memory without passing registers or L1.
__device__ inline void copy16_async(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(global)
               : "memory");
}
// As above for what is read once: it leaves L2 before other data does.
__device__ inline uint64_t l2_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void copy16_async_once(void* shared, const void* global, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   shared_address(shared)),
               "l"(global), "l"(policy)
               : "memory");
}
// As copy16_async; with `keep` false writes zeros and reads nothing.
__device__ inline void copy16_async_or_zero(void* shared, const void* global, bool keep) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(keep ? 16 : 0)
               : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace inferd::cuda
