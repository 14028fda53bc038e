// What the kernels of 1 to 4 rows of x share, coded_few_gemm.cu and codes_few_gemm.cu.
// Blocks, one a multiprocessor, take bands of 16 rows of w in turn, of a gated product 8 of the
// gate and the 8 of the same outputs:
//
//   16 warps    multiply, each two tiles of 128 columns of every band, with x for them in registers
//   m warps     add up a band's sums, a token each, and store them, while the others are at the
//               next band
//
// Of a band's two copies of sums one is written while the other is added up. How the codes come to
// a warp and what it multiplies is the kernels' own.
#pragma once
#include "cuda/device/warp_queue.cuh"
#include "cuda/gemm/small_gemm.h"

namespace inferd::cuda {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * kWarp;  // that multiply
constexpr int kTiles = 2, kTileColumns = 128;          // of a band, of a warp
constexpr int kBandsAhead = 2, kDeep = kBandsAhead * kTiles;
constexpr int kMostColumns = kWarps * kTiles * kTileColumns;
static_assert(kThreads * 8 == kMostColumns);
// The sums of a band: [copy][warp][token][row of 16].
constexpr int kPitch = 16 + 1, kSumBytes = 2 * kWarps * kFewRows * kPitch * 4;
// Of squares, where x is normed: [warp][token].
constexpr int kSquareBytes = kWarps * kFewRows * 4;

// Barriers to which all warps of the block come: of x in shared memory; of a copy of the sums, when
// all have written it, and when it is free again.
constexpr int kTokensBarrier = 1;
constexpr int sums_written(int copy) { return 2 + copy; }
constexpr int sums_added(int copy) { return 4 + copy; }

__host__ __device__ inline int bands_of(const GemmArgs& p) {
  return p.gated ? (p.n + 7) / 8 : (p.n + 15) / 16;
}

inline bool are_few_rows(const GemmArgs& p) {
  return p.m >= 1 && p.m <= kFewRows && p.n >= 1 && p.k >= 8 && p.k <= kMostColumns &&
         p.k % 8 == 0 && p.x_stride % 8 == 0 &&
         !(p.gated && (p.add_to_y || p.out == GemmOut::kF32));
}

// The norm's weight of the eight columns of this thread.
__device__ inline void load_norm_weight(const GemmArgs& p, float (&weight)[8]) {
  const int own = static_cast<int>(threadIdx.x) * 8;
#pragma unroll
  for (int e = 0; e < 8; ++e) weight[e] = 1.f;
  if (p.norm_weight != nullptr && own < p.k) {
    const float4* of = reinterpret_cast<const float4*>(p.norm_weight + own);
    const float4 low = of[0], high = of[1];
    weight[0] = low.x, weight[1] = low.y, weight[2] = low.z, weight[3] = low.w;
    weight[4] = high.x, weight[5] = high.y, weight[6] = high.z, weight[7] = high.w;
  }
}

// Brings x to `held`, by way of `place` in shared memory: a thread has eight columns of each row,
// which it norms but for the factor of the row, and puts into the order of products. Held:
//
//   kRowBytes            of a row in shared memory
//   put(pairs, to)       eight columns of this thread, of the row at `to`; all threads of a warp
//   clear(), take(from)  what a lane multiplies: none, or that of the row at `from`
template <typename T, typename Held>
__device__ void load_tokens(const GemmArgs& p, const float (&weight)[8], uint8_t* place,
                            float* squares, Held& held) {
  const int own = static_cast<int>(threadIdx.x) * 8, g = threadIdx.x % kWarp / 4;
  uint4 rows[kFewRows];
#pragma unroll
  for (int r = 0; r < kFewRows; ++r) {
    rows[r] = uint4{0, 0, 0, 0};
    if (r < p.m && own < p.k)
      rows[r] = *reinterpret_cast<const uint4*>(static_cast<const T*>(p.x) + r * p.x_stride + own);
  }
#pragma unroll
  for (int r = 0; r < kFewRows; ++r) {
    if (r >= p.m) continue;
    uint32_t w[4] = {rows[r].x, rows[r].y, rows[r].z, rows[r].w};
    float square = 0.f;
    if (p.norm_x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 pair = unpack2<T>(w[e]);
        square = fmaf(pair.x, pair.x, fmaf(pair.y, pair.y, square));
        if (p.norm_weight != nullptr)
          w[e] = pack2<T>(pair.x * weight[2 * e], pair.y * weight[2 * e + 1]);
      }
    }
    held.put(w, place + r * Held::kRowBytes);
    if (p.norm_x) {
      square = warp_sum(square);
      if (threadIdx.x % kWarp == 0) squares[threadIdx.x / kWarp * kFewRows + r] = square;
    }
  }
  held.clear();
  warps_sync(kTokensBarrier, kWarps + p.m);
  if (g < p.m) held.take(place + g * Held::kRowBytes);
  warps_sync(kTokensBarrier, kWarps + p.m);
}

// Leaves what a warp has summed up of its block's `turn`-th band: rows g (0, 1) and 8 more (2, 3)
// of w, tokens 2 t and the next.
__device__ inline void hand_over(const GemmArgs& p, float* sums, int turn, const float (&acc)[4]) {
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const int copy = turn % 2;
  if (turn >= 2) warps_sync(sums_added(copy), kWarps + p.m);
  if (t < kFewRows / 2) {
    float* mine = sums + ((copy * kWarps + warp) * kFewRows + t * 2) * kPitch + g;
#pragma unroll
    for (int e = 0; e < 4; ++e) mine[(e & 1) * kPitch + (e >> 1) * 8] = acc[e];
  }
  __syncwarp();
  warps_arrive(sums_written(copy), kWarps + p.m);
}

// What a warp that adds up does: all bands of `token`. row_factor(row of w): what a sum of the row
// is multiplied by.
template <typename T, typename RowFactor>
__device__ void add_up(const GemmArgs& p, const float* sums, const float* squares, int token,
                       const RowFactor& row_factor) {
  for (int i = 0; i < 2; ++i) warps_sync(kTokensBarrier, kWarps + p.m);
  const int all = kWarps + p.m, bands = bands_of(p), grid = static_cast<int>(gridDim.x);
  const int lane = threadIdx.x % kWarp, part = lane % 2, at = lane / 2;  // two lanes a row
  // A gate and its factor are rows apart, and two lanes.
  const int gated = p.gated ? 1 : 0, up = at & gated, output = at >> gated;
  const int row = p.gated ? output + up * 8 : at;
  const bool f32 = p.out == GemmOut::kF32;
  const auto number = [&](const void* of, int64_t i) {
    return f32 ? static_cast<const float*>(of)[i] : to_float(static_cast<const T*>(of)[i]);
  };
  float norm = 1.f;
  int copy = 0;
  for (int band = blockIdx.x; band < bands; band += grid, copy ^= 1) {
    const int out = band * (16 >> gated) + output;
    const bool inside = out < p.n, stores = inside && part == 0 && up == 0;
    const int64_t to = token * p.y_stride + out;
    // Before there are sums, as it may come from far.
    float factor = 0.f, bias = 0.f, before = 0.f;
    if (inside) factor = row_factor(up * p.n + out);
    if (inside && p.bias != nullptr) bias = number(p.bias, up * p.n + out);
    if (stores && p.add_to_y) before = number(p.y, to);
    warps_sync(sums_written(copy), all);
    if (p.norm_x && band == static_cast<int>(blockIdx.x)) {
      float square = squares[lane % kWarps * kFewRows + token];
#pragma unroll
      for (int apart = 1; apart < kWarps; apart *= 2)
        square += __shfl_xor_sync(kFullWarp, square, apart);
      norm = rsqrtf(square / static_cast<float>(p.k) + p.norm_eps);
    }
    const float* from = sums + ((copy * kWarps + part) * kFewRows + token) * kPitch + row;
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < kWarps; w += 2) sum += from[w * kFewRows * kPitch];
    sum += __shfl_xor_sync(kFullWarp, sum, 1);
    // Where somebody will wait for it: no barrier is left half complete.
    if (band + 2 * grid < bands) warps_arrive(sums_added(copy), all);
    sum = sum * (factor * norm) + bias;
    if (p.gated) sum = silu(sum) * __shfl_xor_sync(kFullWarp, sum, 2);
    if (!stores) continue;
    sum += before;
    if (f32) {
      static_cast<float*>(p.y)[to] = sum;
    } else {
      static_cast<T*>(p.y)[to] = from_float<T>(sum);
    }
  }
}

}  // namespace
}  // namespace inferd::cuda
