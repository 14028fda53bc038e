// 1. The second half of what low-rank adapters add to a product ("expand"): y += low B^T; gated:
// out =
//    gate(g) * u of y = [g | u] with that added. low is what adapter_shrink.cu left, divided by the
//    root mean square of its row of x where the product does that.
// 2. y [rows, outputs] f16, bf16 or f32, B [outputs, r] f16 or bf16, sums and squares f32. Rows of
// y
//    lie any multiple of 8 apart; the rows of a tile lie anywhere.
// 3. A block takes 16 rows of one adapter and some outputs, a warp 32 of them at a time; low, the
//    sum over the pieces, lies in shared memory. The product is mma.m16n8k16 with low as A; the 32
//    outputs of a warp are dealt to its 4 products so that a lane has 8 neighbouring ones. The grid
//    fits the device, and blocks go on until the tiles, whose number only the device knows, are
//    done.
// 4. Shared memory 32 (rank + 8) bytes a section; up to 128 registers. B, and the first y, are
//    fetched ahead of low.
// 5. low is rounded to 16 bits once, as if it were stored: 2^-9 (bf16), 2^-11 (f16) of what is
//    added; f32 otherwise.
// 6. As adapter_shrink.cu; gated, two sections of equally many outputs, a multiple of 8.
// 7. Reads B of each adapter in use once from memory, then from L2: 2 outputs rank bytes, and reads
//    and writes y. Bound by latency for few adapters, by memory for many. Timings:
//    adapter_shrink.cu.
// 8. As adapter_shrink.cu.
// 9. y behind the sum of low: two round trips to L2 one after the other.
#include "cuda/adapters/adapter_kernels.cuh"
#include "cuda/adapters/adapter_products.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/rows/gate_values.cuh"

namespace inferd::cuda {
namespace {

constexpr int kExpandWarps = 8, kExpandThreads = kExpandWarps * kWarp;
constexpr int kStrip = 32;  // outputs of a warp at a time
constexpr int kExpandColumns = kExpandWarps * kStrip;
constexpr int kManyBlocks = 1024;  // of an expand, from which on each takes several strips
constexpr int kManyStrips = 4;
constexpr int kLowPadding = 8;  // values behind a row of low in shared memory

// Sums `count` pieces, `step` values apart.
__device__ float sum_pieces(const float* pieces, int32_t count, int64_t step) {
  float sum = 0.f;
#pragma unroll 8
  for (int32_t i = 0; i < count; ++i) sum += pieces[i * step];
  return sum;
}

// Puts low of a section of the rows of a tile into `to`, zeros for rows behind them.
template <typename T>
__device__ void take_lows(T* to, int32_t to_stride, const AdapterProduct& p,
                          const AdapterTile& tile, int32_t section, int32_t rank) {
  const int32_t width = p.factors.sections * p.factors.rank_room, rows = p.tiles.rows;
#pragma unroll 1
  for (int32_t v = threadIdx.x; v < kAdapterTileRows * rank; v += kExpandThreads) {
    const int32_t r = v / rank, j = v % rank, row = tile.first + r;
    float sum = 0.f;
    if (r < tile.rows) {
      const int64_t at = int64_t{row} * width + section * p.factors.rank_room + j;
      sum = sum_pieces(p.lows.sums + at, p.lows.pieces, int64_t{rows} * width);
      if (p.normed) {
        const float squares = sum_pieces(p.lows.squares + row, p.lows.pieces, rows);
        sum *= rsqrtf(squares / static_cast<float>(p.factors.inputs) + p.eps);
      }
    }
    to[r * to_stride + j] = from_float<T>(sum);
  }
}

// The rows of B, of one section, that a warp multiplies at a time, and how they lie in registers:
// product j has output g / 2 * 8 + 2 j + g % 2 of the strip as its column g.
template <typename T>
struct Strip {
  const T* b;      // of the section; null: none
  int32_t rank;    // 0: none
  int32_t column;  // first of the strip
  int32_t end;     // outputs of the section

  __device__ void load(uint2 (&w)[4], int32_t step, int g, int t) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int32_t output = column + g / 2 * 8 + 2 * j + g % 2;
      w[j] = step < rank && output < end
                 ? __ldcg(reinterpret_cast<const uint2*>(b + int64_t{output} * rank + step + 4 * t))
                 : uint2{};
    }
  }
  // c += low B^T, whose first step is in `w`.
  __device__ void multiply(float (&c)[4][4], uint2 (&w)[4], const T* low, int32_t low_stride, int g,
                           int t) const {
#pragma unroll 1
    for (int32_t step = 0; step < rank; step += kAdapterRankStep) {
      const T* at = low + g * low_stride + step + 4 * t;
      const uint2 upper = *reinterpret_cast<const uint2*>(at);
      const uint2 lower = *reinterpret_cast<const uint2*>(at + 8 * low_stride);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        mma16816<T>(c[j], upper.x, lower.x, upper.y, lower.y, w[j].x, w[j].y);
      load(w, step + kAdapterRankStep, g, t);
    }
  }
};

template <typename T>
__device__ Strip<T> strip_of(const AdapterProduct& p, int32_t place, int32_t section,
                             int32_t first_output, int32_t column) {
  const AdapterFactorsView& f = p.factors;
  const int64_t at = (int64_t{place} * f.all_outputs + first_output) * f.rank_room;
  return {static_cast<const T*>(f.b) + at, rank_of(f, place, section), column, f.outputs[section]};
}

struct ExpandTarget {
  void* out;  // gated: the result; else null
  int64_t out_stride;
  void* y;
  int64_t y_stride;
  int32_t strips;  // of a warp
  bool wide;       // rows of y and sections begin at 16 bytes and have whole groups of 8
};

// A lane's 8 outputs of row g (half 0) or g + 8 (half 1) from c, added to what is there: `before`,
// or `count` of them one by one.
template <typename Y>
__device__ void add_wide(Y* y, Vec8<Y> before, const float (&c)[4][4], int half) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    before.v[i] = from_float<Y>(to_float(before.v[i]) + c[i / 2][i % 2 + 2 * half]);
  store8(y, before);
}
template <typename Y>
__device__ void add_outputs(Y* y, const float (&c)[4][4], int half, int32_t count) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count) y[i] = from_float<Y>(to_float(y[i]) + c[i / 2][i % 2 + 2 * half]);
}

template <typename T, typename Y>
__global__ __launch_bounds__(kExpandThreads) void expand_kernel(
    const __grid_constant__ AdapterProduct p, ExpandTarget to) {
  extern __shared__ __align__(16) unsigned char shared[];
  T* const low = reinterpret_cast<T*>(shared);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  let_next_start();
  const AdapterFactorsView& f = p.factors;
  const int32_t low_stride = f.rank_room + kLowPadding, columns = to.strips * kExpandColumns;
  int32_t of_tile = 0;
#pragma unroll 1
  for (int32_t s = 0; s < f.sections; ++s) of_tile += (f.outputs[s] + columns - 1) / columns;
  const int32_t items = __ldcg(p.tiles.counts) * of_tile;
  bool waited = false;
  for (int32_t item = blockIdx.x; item < items; item += gridDim.x) {
    const AdapterTile tile = tile_at(p.tiles, item / of_tile);
    int32_t block = item % of_tile, section = 0, first_output = 0;
#pragma unroll 1
    for (;; ++section) {
      const int32_t blocks = (f.outputs[section] + columns - 1) / columns;
      if (block < blocks) break;
      block -= blocks;
      first_output += f.outputs[section];
    }
    const int32_t column = block * columns + warp * kStrip;
    Strip<T> strip = strip_of<T>(p, tile.place, section, first_output, column);
    if (strip.rank == 0) continue;
    uint2 w[4];
    strip.load(w, 0, g, t);
    const int32_t* order = p.tiles.order + tile.first + g;
    const int32_t rows[2] = {g < tile.rows ? __ldcg(order) : -1,
                             g + 8 < tile.rows ? __ldcg(order + 8) : -1};
    if (!waited) wait_for_previous();
    waited = true;
    // y of the first strip is fetched beside low.
    Vec8<Y> ahead[2];
    const auto y_of = [&](int half) {
      return static_cast<Y*>(to.y) + rows[half] * to.y_stride + first_output + strip.column + 8 * t;
    };
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (to.wide && rows[half] >= 0 && strip.column + 8 * t < strip.end)
        ahead[half] = load8(y_of(half));
    take_lows(low, low_stride, p, tile, section, strip.rank);
    __syncthreads();
#pragma unroll 1
    for (int32_t s = 0; s < to.strips; ++s) {
      float c[4][4] = {};
      if (s > 0) strip.load(w, 0, g, t);
      strip.multiply(c, w, low, low_stride, g, t);
      const int32_t at = strip.column + 8 * t;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (rows[half] < 0 || at >= strip.end) continue;
        if (to.wide) {
          if (s > 0) ahead[half] = load8(y_of(half));
          add_wide(y_of(half), ahead[half], c, half);
        } else {
          add_outputs(y_of(half), c, half, strip.end - at);
        }
      }
      strip.column += kExpandColumns;
    }
    __syncthreads();
  }
  if (!waited) wait_for_previous();
}

template <typename T, Gate kGate>
__global__ __launch_bounds__(kExpandThreads) void expand_gated_kernel(
    const __grid_constant__ AdapterProduct p, ExpandTarget to) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  let_next_start();
  const AdapterFactorsView& f = p.factors;
  const int32_t low_stride = f.rank_room + kLowPadding, columns = to.strips * kExpandColumns;
  T* const lows[2] = {reinterpret_cast<T*>(shared),
                      reinterpret_cast<T*>(shared) + kAdapterTileRows * low_stride};
  const int32_t width = f.outputs[0], of_tile = (width + columns - 1) / columns;
  const int32_t items = __ldcg(p.tiles.counts + 1) * of_tile;
  bool waited = false;
  for (int32_t item = blockIdx.x; item < items; item += gridDim.x) {
    const AdapterTile tile = tile_at(p.tiles, item / of_tile);
    const int32_t column = item % of_tile * columns + warp * kStrip;
    Strip<T> strips[2] = {strip_of<T>(p, tile.place, 0, 0, column),
                          strip_of<T>(p, tile.place, 1, width, column)};
    uint2 w[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) strips[i].load(w[i], 0, g, t);
    const int32_t* order = p.tiles.order + tile.first + g;
    const int32_t rows[2] = {g < tile.rows ? __ldcg(order) : -1,
                             g + 8 < tile.rows ? __ldcg(order + 8) : -1};
    if (!waited) wait_for_previous();
    waited = true;
    // y of the first strip is fetched beside low.
    Vec8<T> ahead[2][2];
    const auto fetch = [&](int half) {
      const T* y =
          static_cast<const T*>(to.y) + rows[half] * to.y_stride + strips[0].column + 8 * t;
      ahead[half][0] = load8(y);
      ahead[half][1] = load8(y + width);
    };
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (rows[half] >= 0 && strips[0].column + 8 * t < width) fetch(half);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (strips[i].rank > 0) take_lows(lows[i], low_stride, p, tile, i, strips[i].rank);
    __syncthreads();
#pragma unroll 1
    for (int32_t s = 0; s < to.strips; ++s) {
      float c[2][4][4] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (s > 0) strips[i].load(w[i], 0, g, t);
        strips[i].multiply(c[i], w[i], lows[i], low_stride, g, t);
      }
      const int32_t at = strips[0].column + 8 * t;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (rows[half] < 0 || at >= width) continue;
        if (s > 0) fetch(half);
        const auto& [gates, ups] = ahead[half];
        Vec8<T> out;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int of = i % 2 + 2 * half;
          out.v[i] = from_float<T>(gated_value<kGate>(to_float(gates.v[i]) + c[0][i / 2][of],
                                                      to_float(ups.v[i]) + c[1][i / 2][of]));
        }
        store8(static_cast<T*>(to.out) + rows[half] * to.out_stride + at, out);
      }
      strips[0].column += kExpandColumns;
      strips[1].column += kExpandColumns;
    }
    __syncthreads();
  }
  if (!waited) wait_for_previous();
}

// Of a sum or a gated result; `width` outputs in `blocks` pieces of kExpandColumns.
template <typename Kernel>
cudaError_t expand(Kernel kernel, const AdapterProduct& p, ExpandTarget to, int32_t blocks,
                   int32_t sections_at_once, const Launch& launch) {
  if (int64_t{row_tiles(p.tiles.rows)} * blocks >= kManyBlocks) to.strips = kManyStrips;
  unsigned grid = 0;
  const cudaError_t error = grid_of(int64_t{p.tiles.most_tiles} * blocks, 6, grid);
  if (error != cudaSuccess) return error;
  const auto bytes = static_cast<size_t>(sections_at_once * kAdapterTileRows *
                                         (p.factors.rank_room + kLowPadding) * 2);
  return launch_kernel(kernel,
                       {.grid = dim3(grid), .threads = kExpandThreads, .shared_bytes = bytes},
                       launch, p, to);
}

}  // namespace

cudaError_t adapter_expand(Half type, const AdapterProduct& p, void* y, int64_t y_stride,
                           bool y_f32, const Launch& launch) {
  if (!takes(p)) return cudaErrorInvalidValue;
  ExpandTarget to{.out = nullptr,
                  .out_stride = 0,
                  .y = y,
                  .y_stride = y_stride,
                  .strips = 1,
                  .wide = !y_f32 && y_stride % 8 == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0};
  int32_t blocks = 0;
  for (int32_t s = 0; s < p.factors.sections; ++s) {
    to.wide = to.wide && p.factors.outputs[s] % 8 == 0;
    blocks += (p.factors.outputs[s] + kExpandColumns - 1) / kExpandColumns;
  }
  if (type == Half::kBF16) {
    return expand(
        y_f32 ? expand_kernel<__nv_bfloat16, float> : expand_kernel<__nv_bfloat16, __nv_bfloat16>,
        p, to, blocks, 1, launch);
  }
  return expand(y_f32 ? expand_kernel<__half, float> : expand_kernel<__half, __half>, p, to, blocks,
                1, launch);
}

cudaError_t adapter_expand_gated(Half type, const AdapterProduct& p, Gate gate, void* out,
                                 int64_t out_stride, const void* y, int64_t y_stride,
                                 const Launch& launch) {
  const AdapterFactorsView& f = p.factors;
  if (!takes(p) || f.sections != 2 || f.outputs[0] != f.outputs[1] || f.outputs[0] % 8 != 0 ||
      y_stride % 8 != 0 || out_stride % 8 != 0) {
    return cudaErrorInvalidValue;
  }
  const ExpandTarget to{.out = out,
                        .out_stride = out_stride,
                        .y = const_cast<void*>(y),  // only read
                        .y_stride = y_stride,
                        .strips = 1,
                        .wide = true};
  const int32_t blocks = (f.outputs[0] + kExpandColumns - 1) / kExpandColumns;
  const auto of = [&]<Gate kGate>() {
    return type == Half::kBF16
               ? expand(expand_gated_kernel<__nv_bfloat16, kGate>, p, to, blocks, 2, launch)
               : expand(expand_gated_kernel<__half, kGate>, p, to, blocks, 2, launch);
  };
  switch (gate) {
    case Gate::kSilu:
      return of.operator()<Gate::kSilu>();
    case Gate::kGeluTanh:
      return of.operator()<Gate::kGeluTanh>();
    default:
      return of.operator()<Gate::kClampedSwiglu>();
  }
}

}  // namespace inferd::cuda
