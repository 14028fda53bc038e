// Products of 16 rows of weights with a few rows of x, for weights that are read once and from
// memory: a block of four warps, each with every fourth 32 of k, whose sums are put together at the
// end. No shared memory on the way: a lane's fragments of mma.m16n8k16 are 16 neighbouring bytes of
// a row of w and of x, which permutes k the same way in both. Loads of the next round are under way
// while one is multiplied.
#pragma once
#include "cuda/device/mma.cuh"

namespace inferd::cuda {

constexpr int kSliceWarps = 4;
constexpr int kSliceOutputs = 16, kSliceTokens = 8;  // rows and columns of an mma
constexpr int kSliceDepth = 32;                      // of k, a step of a warp: two mma
constexpr int kSliceStep = kSliceWarps * kSliceDepth;

// Sixteen bytes of weights, which are read once, past L1. Volatile: the compiler would move loads
// behind products to save registers.
__device__ inline uint4 load_once(const void* row) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(row));
  return v;
}

// What a thread has of kAhead steps: of each part rows g and g + 8 of w, of x row g of each eight.
template <int kAhead, int kParts, int kColumns>
struct SliceRound {
  uint4 w[kAhead][kParts][2], x[kAhead][kColumns];
};

// sums[part][n] += w[part] x[n]^T over this warp's share of k, as fragments C: outputs by tokens.
// w[part]: rows g and g + 8 of the 16, for g = lane / 4; rows_of_x(x) says where row g of each
// eight of x is, which is asked when the first weights are under way; k a multiple of 8, rows
// 16-byte aligned.
template <typename T, int kAhead, int kParts, int kColumns, typename RowsOfX>
__device__ void multiply_slices(float (&sums)[kParts][kColumns][4], const T* const (&w)[kParts][2],
                                const RowsOfX& rows_of_x, int32_t k) {
  using Round = SliceRound<kAhead, kParts, kColumns>;
  constexpr int32_t kRound = kAhead * kSliceStep;
  const int32_t mine = threadIdx.x / kWarp * kSliceDepth + threadIdx.x % 4 * 8;
  // Beyond k the last values come again, and meet zeros.
  const auto fetch_w = [&](Round& to, int32_t from) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int32_t at = min(from + mine + u * kSliceStep, k - 8);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        to.w[u][part][0] = load_once(w[part][0] + at);
        to.w[u][part][1] = load_once(w[part][1] + at);
      }
    }
  };
  Round round, next;
  fetch_w(round, 0);
  const T* x[kColumns];
  rows_of_x(x);
  const auto fetch_x = [&](Round& to, int32_t from) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int32_t at = min(from + mine + u * kSliceStep, k - 8);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) to.x[u][n] = *reinterpret_cast<const uint4*>(x[n] + at);
    }
  };
  fetch_x(round, 0);
  for (int32_t from = 0; from < k; from += kRound) {
    if (from + kRound < k) {
      fetch_w(next, from + kRound);
      fetch_x(next, from + kRound);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const bool live = from + mine + u * kSliceStep < k;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const uint4 v = live ? round.x[u][n] : uint4{0, 0, 0, 0};
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const uint4 &low = round.w[u][part][0], &high = round.w[u][part][1];
          mma16816<T>(sums[part][n], low.x, high.x, low.y, high.y, v.x, v.y);
          mma16816<T>(sums[part][n], low.z, high.z, low.w, high.w, v.z, v.w);
        }
      }
    }
    round = next;
  }
}

// The sums of all warps, in shared memory.
template <int kParts, int kColumns>
struct SliceSums {
  float values[kSliceWarps][kParts][kColumns][4][kWarp];

  // Of one output of the 16 and one token of the n-th eight.
  __device__ float sum(int part, int n, int output, int token) const {
    const int lane = output % 8 * 4 + token / 2, i = output / 8 * 2 + token % 2;
    float total = 0.f;
#pragma unroll
    for (int warp = 0; warp < kSliceWarps; ++warp) total += values[warp][part][n][i][lane];
    return total;
  }
};

// All threads of the block call it.
template <int kParts, int kColumns>
__device__ void share_slices(const float (&sums)[kParts][kColumns][4],
                             SliceSums<kParts, kColumns>& to) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        to.values[threadIdx.x / kWarp][part][n][i][threadIdx.x % kWarp] = sums[part][n][i];
    }
  }
  __syncthreads();
}

}  // namespace inferd::cuda
