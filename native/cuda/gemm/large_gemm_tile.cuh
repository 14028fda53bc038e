// The large GEMM's tiles: their sizes, their order, the shared memory they pass through, and the
// thread that fills it. Device code of large_gemm_sm90.cu alone.
#pragma once
#include "cuda/device/hopper_cluster.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/gemm/gemm_codes_view.h"
#include "cuda/gemm/large_gemm.h"

namespace inferd::cuda {

constexpr int kGemmThreads = 384;  // a producer warpgroup and two consumers
constexpr int kCluster = 2;        // blocks: pairs fill every multiprocessor, larger ones may not
constexpr int kTileRows = 128, kTileColumns = 256;  // of x and of w, a block
constexpr int kBoxRows = kTileColumns / kCluster;   // of w, which a block fetches for both
constexpr int kDepth = 64;            // of k a stage: 128 bytes, the width of the swizzle
constexpr int kStages = 4;            // what fits
constexpr int kBandRows = 2048;       // of y, visited together
constexpr int kKeptBytes = 20 << 20;  // what L2 can be asked to keep
constexpr int kRowBytes = kDepth * 2, kAtomBytes = 1024;
// y leaves through shared memory, a warp's 16 rows by 128 columns at a time, in two panels.
constexpr int kPanelColumns = 64, kPanelRows = 16, kPanelBytes = kPanelRows * 128;

struct alignas(1024) GemmShared {
  uint8_t x[kStages][kTileRows * kRowBytes];  // 128-byte swizzle
  uint8_t w[kStages][kTileColumns * kRowBytes];
  uint8_t y[8][2][kPanelBytes];  // of each consumer warp
  uint64_t full[kStages], free[kStages];
};

static_assert(kGroupTileRows == kCluster * kTileRows && kGroupRowStep % kPanelRows == 0);

struct LargeGemmArgs {
  void* y;
  const void* bias;
  int64_t y_stride;
  int32_t m, n, k_steps;
  int32_t rows, columns;  // tiles of a cluster along m and n
  int32_t band;           // rows of them visited together
  int32_t clusters;       // of the grid; kept from gridDim it took a register too many
  bool add_to_y;
  bool keep_x, pass_y;  // hints to L2: x of a band is read again, y is not
  CodesView codes;
  const GroupTile* groups;     // of groups: the clusters' rows, in place of `rows` equal ones
  const int32_t* group_count;  // how many
  int32_t w_step;              // rows of w from one group to the next
};

#ifdef INFERD_HOPPER

// Tiles are visited in bands of rows, down the columns of a band, so that x of a band and the last
// columns of w stay in L2; every other band runs back from where the one before ended.
struct TilePlace {
  int32_t row, column;

  __device__ TilePlace(const LargeGemmArgs& p, int32_t index) {
    const int32_t number = index / (p.band * p.columns), first = number * p.band;
    const int32_t height = min(p.band, p.rows - first), inside = index - first * p.columns;
    column = inside / height;
    row = first + inside - column * height;
    if (number % 2 == 1) column = p.columns - 1 - column;
  }
};

// The same of groups: all columns of a tile's rows after each other, so that the clusters at work
// share the w of few groups.
struct GroupPlace {
  GroupTile tile;
  int32_t column;

  __device__ GroupPlace(const LargeGemmArgs& p, int32_t index)
      : tile(p.groups[index / p.columns]), column(index % p.columns) {}
};

// As produce(). Nothing can be fetched ahead of the kernels before, which say what the groups are.
template <bool kGated>
__device__ void produce_groups(const LargeGemmArgs& p, GemmShared& s, const CUtensorMap* x_map,
                               const CUtensorMap* w_map) {
  const int32_t rank = static_cast<int32_t>(cluster_rank());
  const uint64_t policy = l2_normal();
  wait_for_previous();
  const int32_t tiles = *p.group_count * p.columns;
  int32_t at = 0;
  for (int32_t index = static_cast<int32_t>(blockIdx.x) / kCluster; index < tiles;
       index += p.clusters) {
    const GroupPlace place(p, index);
    const int32_t w_row =
        place.tile.group * p.w_step + (kGated ? place.column * kBoxRows + rank * p.n
                                              : place.column * kTileColumns + rank * kBoxRows);
    for (int32_t step = 0; step < p.k_steps; ++step, ++at) {
      const int stage = at % kStages;
      if (at >= kStages) barrier_wait(&s.free[stage], (at / kStages & 1) ^ 1);
      barrier_expect(&s.full[stage], (kTileRows + kTileColumns) * kRowBytes);
      tensor_copy_2d_all(s.w[stage] + rank * kBoxRows * kRowBytes, w_map, &s.full[stage],
                         step * kDepth, w_row, (1 << kCluster) - 1, policy);
      tensor_copy_2d(s.x[stage], x_map, &s.full[stage], step * kDepth,
                     place.tile.row + rank * kTileRows, policy);
    }
  }
}

// One thread. `at` counts stages filled, as in the consumers.
template <bool kGated>
__device__ void produce(const LargeGemmArgs& p, GemmShared& s, const CUtensorMap* x_map,
                        const CUtensorMap* w_map) {
  static_assert(kCluster == 2, "where gated, one block fetches gate rows, the other up rows");
  const int32_t rank = static_cast<int32_t>(cluster_rank());
  const int32_t tiles = p.rows * p.columns;
  const uint64_t x_policy = p.keep_x ? l2_last() : l2_normal(), w_policy = l2_normal();
  // Half of the tile's rows of w, for both blocks.
  const auto fetch_w = [&](int stage, const TilePlace& tile, int32_t step) {
    barrier_expect(&s.full[stage], (kTileRows + kTileColumns) * kRowBytes);
    const int32_t row =
        kGated ? tile.column * kBoxRows + rank * p.n : tile.column * kTileColumns + rank * kBoxRows;
    tensor_copy_2d_all(s.w[stage] + rank * kBoxRows * kRowBytes, w_map, &s.full[stage],
                       step * kDepth, row, (1 << kCluster) - 1, w_policy);
  };
  const auto fetch_x = [&](int stage, const TilePlace& tile, int32_t step) {
    tensor_copy_2d(s.x[stage], x_map, &s.full[stage], step * kDepth,
                   (tile.row * kCluster + rank) * kTileRows, x_policy);
  };

  int32_t index = static_cast<int32_t>(blockIdx.x) / kCluster;
  const TilePlace first(p, index);
  const int32_t ahead = min(kStages, p.k_steps);
  for (int i = 0; i < ahead; ++i) fetch_w(i, first, i);
  wait_for_previous();
  for (int i = 0; i < ahead; ++i) fetch_x(i, first, i);
  int32_t at = ahead;
  for (int32_t step = ahead; index < tiles; index += p.clusters, step = 0) {
    const TilePlace tile(p, index);
    for (; step < p.k_steps; ++step, ++at) {
      const int stage = at % kStages;
      barrier_wait(&s.free[stage], (at / kStages & 1) ^ 1);
      fetch_w(stage, tile, step);
      fetch_x(stage, tile, step);
    }
  }
}

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
