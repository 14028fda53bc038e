// The large GEMM's tiles: their sizes, their order, the shared memory they pass through, and the
// thread that fills it. Device code of large_gemm_sm90.cu alone.
#pragma once
#include "hopper_cluster.cuh"
#include "launch.cuh"

namespace inferd::cuda {

constexpr int kGemmThreads = 384;     // a producer warpgroup and two consumers
constexpr int kDepth = 64;            // of k a stage: 128 bytes, the width of the swizzle
constexpr int kBandRows = 2048;       // of y, visited together
constexpr int kKeptBytes = 20 << 20;  // what L2 can be asked to keep
constexpr int kRowBytes = kDepth * 2, kAtomBytes = 1024;
// y leaves through shared memory, a warp's 16 rows by 128 columns at a time, in two panels.
constexpr int kPanelColumns = 64, kPanelRows = 16, kPanelBytes = kPanelRows * 128;

// A consumer computes 64 * kRowBlocksV rows by kColumnsV columns of w. Both work on one tile, its
// upper and its lower half, or, with kTurnsV, on a tile each. The kClusterV blocks of a cluster
// have tiles below one another and fetch a part of their common columns of w for all.
template <int kRowBlocksV, int kColumnsV, int kStagesV, int kClusterV, bool kTurnsV>
struct GemmShape {
  static constexpr int kRowBlocks = kRowBlocksV, kColumns = kColumnsV, kStages = kStagesV;
  static constexpr int kCluster = kClusterV;
  static constexpr bool kTurns = kTurnsV;
  static constexpr int kRows = 64 * kRowBlocks * (kTurns ? 1 : 2);
  // w comes in two boxes, since the halves of a gated tile lie apart.
  static constexpr int kBoxes = 2, kBoxRows = kColumns / kBoxes;
  static constexpr int kXBytes = kRows * kRowBytes, kWBytes = kColumns * kRowBytes;
};

template <typename Shape>
struct alignas(1024) GemmShared {
  uint8_t x[Shape::kStages][Shape::kXBytes];  // 128-byte swizzle
  uint8_t w[Shape::kStages][Shape::kWBytes];
  uint8_t y[8][2][kPanelBytes];  // of each consumer warp
  uint64_t full[Shape::kStages], free[Shape::kStages];
  uint64_t turn[2];  // of a consumer to multiply, with kTurns
};

struct LargeGemmArgs {
  void* y;
  const void* bias;
  int64_t y_stride;
  int32_t m, n, k_steps;
  int32_t rows, columns;  // tiles of a cluster along m and n
  int32_t band;           // rows of them visited together
  bool add_to_y;
  bool keep_x, pass_y;  // hints to L2: x of a band is read again, y is not
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

// One thread. `at` counts stages filled, as in the consumers.
template <typename Shape, bool kGated>
__device__ void produce(const LargeGemmArgs& p, GemmShared<Shape>& s, const CUtensorMap* x_map,
                        const CUtensorMap* w_map) {
  constexpr int kCluster = Shape::kCluster, kStages = Shape::kStages;
  constexpr int kBoxes = Shape::kBoxes, kBoxRows = Shape::kBoxRows;
  const int32_t rank = kCluster > 1 ? static_cast<int32_t>(cluster_rank()) : 0;
  const int32_t clusters = static_cast<int32_t>(gridDim.x) / kCluster;
  const int32_t tiles = p.rows * p.columns;
  const uint64_t x_policy = p.keep_x ? l2_last() : l2_normal(), w_policy = l2_normal();
  const auto fetch_w = [&](int stage, const TilePlace& tile, int32_t step) {
    barrier_expect(&s.full[stage], Shape::kXBytes + Shape::kWBytes);
#pragma unroll
    for (int i = 0; i < kBoxes / kCluster; ++i) {
      const int32_t box = rank * (kBoxes / kCluster) + i;
      const int32_t row = kGated ? tile.column * (Shape::kColumns / 2) +
                                       box % (kBoxes / 2) * kBoxRows + box / (kBoxes / 2) * p.n
                                 : tile.column * Shape::kColumns + box * kBoxRows;
      uint8_t* const to = s.w[stage] + box * kBoxRows * kRowBytes;
      if constexpr (kCluster > 1) {
        tensor_copy_2d_all(to, w_map, &s.full[stage], step * kDepth, row, (1 << kCluster) - 1,
                           w_policy);
      } else {
        tensor_copy_2d(to, w_map, &s.full[stage], step * kDepth, row, w_policy);
      }
    }
  };
  const auto fetch_x = [&](int stage, const TilePlace& tile, int32_t step) {
    tensor_copy_2d(s.x[stage], x_map, &s.full[stage], step * kDepth,
                   (tile.row * kCluster + rank) * Shape::kRows, x_policy);
  };

  int32_t index = static_cast<int32_t>(blockIdx.x) / kCluster;
  const TilePlace first(p, index);
  const int32_t ahead = min(kStages, p.k_steps);
  for (int i = 0; i < ahead; ++i) fetch_w(i, first, i);
  wait_for_previous();
  for (int i = 0; i < ahead; ++i) fetch_x(i, first, i);
  int32_t at = ahead;
  for (int32_t step = ahead; index < tiles; index += clusters, step = 0) {
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
