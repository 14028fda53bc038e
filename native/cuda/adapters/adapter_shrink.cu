// 1. The first half of what low-rank adapters add to a product ("shrink"): low = x A^T for the rows
// of
//    each tile, and the squares of the rows where the product divides x by their root mean square.
// 2. x [rows, inputs], rows any multiple of 8 apart, A [r, inputs] f16 or bf16; sums, squares f32.
//    The rows of a tile lie anywhere.
// 3. A block takes 16 rows of one adapter, 16 rows of its A and a piece of the columns; its 4 warps
//    take 32 columns in turn, and their sums meet in shared memory. The product is mma.m16n8k16
//    with x as A; columns come in the order that 16-byte loads give, which a sum does not notice.
//    The grid fits the device, and blocks go on until the tiles, whose number only the device
//    knows, are done.
// 4. Shared memory 9 KB, up to 128 registers.
// 5. f32 accumulation in an order that depends on the number of rows of the batch only.
// 6. From sm_80; inputs a multiple of 8, ranks up to 512, up to 4 sections, else
//    cudaErrorInvalidValue.
// 7. Reads A of each adapter in use once from memory, then from L2: 2 inputs rank bytes. Bound by
//    latency for few adapters, by memory for many. Llama-3-8B on an H200, rank 16 on all linears,
//    decode steps of 32 sequences, in ms: base 4.80; one adapter 5.48; 32 of them 7.20, of which
//    reading them at full speed would be 0.6. Room for adapters and none in use costs 0.4 to 1.3 %.
//    Prefill of 32x128 tokens 80.0 without, 90.1 with one, 92.1 with 32. Timings are of both halves
//    together. us of both behind a stand-in for the product, one and 32 adapters: qkv 4.8, 15.8; o
//    3.7, 7.1; gate and up 6.8, 37.6; down 5.5, 16.5.
// 8. LoRA, Hu et al. 2021; many adapters in a batch: Punica (BGMV, SGMV), Chen et al. 2023, S-LoRA,
//    Sheng et al. 2023.
// 9. It comes ahead of the product, not behind: it then hides in the start of the product, which
//    fetches its weights meanwhile. Both halves in one kernel behind the product, clusters of 8
//    (or 4) blocks with an eighth of the columns each, which exchange their sums: 38.7 (30.5) us a
//    layer for one adapter instead of 20.7, 120 (97) for 32 instead of 77. expand unrolled over
//    ranks and with a switch over gates for each output (63 KB of code): 5.6 and 7.5 ms a step.
//    The last block of a tile and 16 rows of A adding up the pieces, so that expand reads low where
//    it lies: behind the product expand of gate and up takes 24 us in place of 32, but each shrink
//    4 to 8 us more; on an H100, where a step takes 6.29 ms without adapters, 7.02 in place of 6.67
//    with one, 8.80 in place of 8.67 with 32. The same with three blocks a multiprocessor in place
//    of two, which spills: 7.48 and 9.13.
//    expand as more columns of the product, for 9 to 64 rows: B in the queue of the weights, 16
//    ranks of an adapter at a time, low from registers. H200, 32 rows, ms without adapters, with
//    one, with 32: 4.62, 5.41, 7.12 as it is; 6.72, 8.38 where each block adds up the pieces of
//    low, up to 28 of each; 5.92, 7.83 where clusters of 8 blocks finish low, which begin only when
//    the blocks ahead of them are gone: 6 to 7 us behind the end of what lies ahead in place
//    of 2.3. gate and up then take 73 us from there in place of 61, as their rank steps come twice.
#include <algorithm>

#include "cuda/adapters/adapter_kernels.cuh"
#include "cuda/adapters/adapter_products.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"

namespace inferd::cuda {
namespace {

constexpr int kShrinkWarps = 4, kShrinkThreads = kShrinkWarps * kWarp;
constexpr int kTurn = kShrinkWarps * kWarp;    // columns that the warps of a block take in one turn
constexpr int kAhead = 4;                      // turns whose loads are in flight
constexpr int kLeastColumns = kAhead * kTurn;  // of a piece
constexpr int kWantedBlocks = 264;  // of a shrink: two for each multiprocessor of an H200

template <typename T>
__device__ float square_sum(const uint4& w) {
  float sum = 0.f;
#pragma unroll
  for (const uint32_t pair : {w.x, w.y, w.z, w.w}) {
    const float2 v = unpack2<T>(pair);
    sum = fmaf(v.x, v.x, fmaf(v.y, v.y, sum));
  }
  return sum;
}

template <typename T>
__global__ __launch_bounds__(kShrinkThreads) void shrink_kernel(
    const __grid_constant__ AdapterProduct p, const T* x, int64_t x_stride, int32_t columns) {
  __shared__ float sums[kShrinkWarps][kAdapterTileRows][kAdapterRankStep + 1];
  __shared__ float squares[kShrinkWarps][kAdapterTileRows];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  bool waited = !p.tiles_settled;
  if (waited) wait_for_previous();
  let_next_start();
  const AdapterFactorsView& f = p.factors;
  const int32_t section_groups = f.rank_room / kAdapterRankStep;
  const int32_t pieces = p.lows.pieces, of_tile = f.sections * section_groups * pieces;
  const int32_t width = f.sections * f.rank_room;
  const int32_t items = __ldcg(p.tiles.counts) * of_tile;
  for (int32_t item = blockIdx.x; item < items; item += gridDim.x) {
    const AdapterTile tile = tile_at(p.tiles, item / of_tile);
    const int32_t group = item % of_tile / pieces, piece = item % pieces;
    const int32_t section = group / section_groups;
    const int32_t low = group % section_groups * kAdapterRankStep;
    if (low >= rank_of(f, tile.place, section)) continue;
    const int64_t a_row = (int64_t{tile.place} * f.sections + section) * f.rank_room + low + g;
    const T* a = static_cast<const T*>(f.a) + a_row * f.inputs;
    const int64_t a_step = int64_t{8} * f.inputs;
    const bool upper = g < tile.rows, lower = g + 8 < tile.rows;
    const int32_t* order = p.tiles.order + tile.first + g;
    const T* x_upper = x + (upper ? __ldcg(order) : 0) * x_stride;
    const T* x_lower = x + (lower ? __ldcg(order + 8) : 0) * x_stride;
    const int32_t end = min(f.inputs, (piece + 1) * columns);
    float c[2][4] = {}, square[2] = {};
    for (int32_t k = piece * columns + warp * kWarp + t * 8; k - t * 8 < end; k += kAhead * kTurn) {
      uint4 aw[kAhead][2], xw[kAhead][2];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int32_t at = k + i * kTurn;
        aw[i][0] = at < end ? load_settled(a + at) : uint4{};
        aw[i][1] = at < end ? load_settled(a + a_step + at) : uint4{};
      }
      if (!waited) {
        wait_for_previous();
        waited = true;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int32_t at = k + i * kTurn;
        xw[i][0] = at < end && upper ? *reinterpret_cast<const uint4*>(x_upper + at) : uint4{};
        xw[i][1] = at < end && lower ? *reinterpret_cast<const uint4*>(x_lower + at) : uint4{};
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const uint4 &u = xw[i][0], &l = xw[i][1];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          mma16816<T>(c[n], u.x, l.x, u.y, l.y, aw[i][n].x, aw[i][n].y);
          mma16816<T>(c[n], u.z, l.z, u.w, l.w, aw[i][n].z, aw[i][n].w);
        }
        if (p.normed) {
          square[0] += square_sum<T>(u);
          square[1] += square_sum<T>(l);
        }
      }
    }
    if (!waited) wait_for_previous();  // a warp without columns
    waited = true;
    // The squares of the rows are told by the first group that there is.
    bool tells = p.normed && low == 0;
    for (int32_t s = 0; s < section; ++s) tells = tells && rank_of(f, tile.place, s) == 0;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[warp][g + i / 2 * 8][n * 8 + 2 * t + i % 2] = c[n][i];
    }
    if (tells) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        square[i] += __shfl_xor_sync(kFullWarp, square[i], 1);
        square[i] += __shfl_xor_sync(kFullWarp, square[i], 2);
        if (t == 0) squares[warp][g + 8 * i] = square[i];
      }
    }
    __syncthreads();
    const int64_t first = int64_t{piece} * p.tiles.rows + tile.first;
    for (int v = threadIdx.x; v < kAdapterTileRows * kAdapterRankStep; v += kShrinkThreads) {
      const int r = v / kAdapterRankStep, j = v % kAdapterRankStep;
      float sum = 0.f;
#pragma unroll
      for (int w = 0; w < kShrinkWarps; ++w) sum += sums[w][r][j];
      if (r < tile.rows) p.lows.sums[(first + r) * width + group * kAdapterRankStep + j] = sum;
    }
    if (tells && threadIdx.x < tile.rows) {
      float sum = 0.f;
#pragma unroll
      for (int w = 0; w < kShrinkWarps; ++w) sum += squares[w][threadIdx.x];
      p.lows.squares[first + threadIdx.x] = sum;
    }
    __syncthreads();
  }
  if (!waited) wait_for_previous();
}

int32_t low_groups(const AdapterFactorsView& f) {
  return f.sections * (f.rank_room / kAdapterRankStep);
}

}  // namespace

int32_t adapter_low_pieces(const AdapterFactorsView& f, int32_t rows) {
  const int32_t most = (f.inputs + kLeastColumns - 1) / kLeastColumns;
  const int32_t wanted = kWantedBlocks / (row_tiles(rows) * low_groups(f));
  return std::clamp(wanted, 1, most);
}

size_t adapter_low_bytes(const AdapterFactorsView& f, int32_t rows) {
  const auto values = static_cast<size_t>(adapter_low_pieces(f, rows)) * static_cast<size_t>(rows);
  return values * sizeof(float) * static_cast<size_t>(f.sections * f.rank_room + 1);
}

AdapterLows adapter_lows_at(void* memory, const AdapterFactorsView& f, int32_t rows) {
  const int32_t pieces = adapter_low_pieces(f, rows);
  auto* sums = static_cast<float*>(memory);
  const int64_t values = int64_t{pieces} * rows * f.sections * f.rank_room;
  return {.sums = sums, .squares = sums + values, .pieces = pieces};
}

cudaError_t adapter_shrink(Half type, const AdapterProduct& p, const void* x, int64_t x_stride,
                           const Launch& launch) {
  if (!takes(p) || x_stride % 8 != 0) return cudaErrorInvalidValue;
  const int32_t pieces = p.lows.pieces;
  const int32_t columns = ((p.factors.inputs + pieces - 1) / pieces + kTurn - 1) / kTurn * kTurn;
  unsigned grid = 0;
  const int64_t items = int64_t{p.tiles.most_tiles} * low_groups(p.factors) * pieces;
  const cudaError_t error = grid_of(items, 4, grid);
  if (error != cudaSuccess) return error;
  const LaunchShape shape{.grid = dim3(grid), .threads = kShrinkThreads};
  if (type == Half::kBF16) {
    return launch_kernel(shrink_kernel<__nv_bfloat16>, shape, launch, p,
                         static_cast<const __nv_bfloat16*>(x), x_stride, columns);
  }
  return launch_kernel(shrink_kernel<__half>, shape, launch, p, static_cast<const __half*>(x),
                       x_stride, columns);
}

}  // namespace inferd::cuda
