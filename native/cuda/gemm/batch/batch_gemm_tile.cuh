// The tiles of batch_gemm_sm90.cu: what they measure, which are whose, and the thread that fetches
// them. Device code of that file alone.
#pragma once
#include "cuda/device/hopper_cluster.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/gemm/large_gemm.h"

namespace inferd::cuda {

constexpr int kBatchThreads = 384;  // a producer warpgroup and two consumers
constexpr int kBatchCluster = 2;    // blocks, whose rows of x lie below one another
constexpr int kBatchRows = 128;     // of x, a block
constexpr int kBatchDepth = 64;     // of k a stage: 128 bytes, the width of the swizzle
constexpr int kBatchRowBytes = kBatchDepth * 2, kBatchAtomBytes = 1024;

template <int kColumns>
struct alignas(1024) BatchShared {
  static constexpr int kStages = kColumns > 224 ? 4 : 5;  // what fits
  uint8_t x[kStages][kBatchRows * kBatchRowBytes];        // 128-byte swizzle
  uint8_t w[kStages][kColumns * kBatchRowBytes];
  uint64_t full[kStages], free[kStages];
  bool last;  // of the blocks that share k of a tile
};

struct BatchGemmParams {
  void* y;
  const void* bias;
  int64_t y_stride;
  int32_t m, n, k_steps;
  int32_t tiles;  // of a cluster: along n
  int32_t splits;
  int32_t clusters;  // of the grid
  bool add_to_y;
  float4* partials;  // of splits: [tile][block of the cluster][split][sums of the block]
  int32_t* tickets;  // of splits: [tile][block of the cluster], zero between launches
};

#ifdef INFERD_HOPPER

// A part of a tile: the index-th of all.
struct BatchItem {
  int32_t tile, part;
  int32_t begin, end;  // stages of k

  __device__ BatchItem(const BatchGemmParams& p, int32_t index)
      : tile(index / p.splits),
        part(index - tile * p.splits),
        begin(p.k_steps * part / p.splits),
        end(p.k_steps * (part + 1) / p.splits) {}
};

// One thread. Each block fetches its rows of x, and half of the rows of w for both blocks; of a
// gated tile one fetches the gate rows, the other those of up.
template <bool kGated, int kColumns>
__device__ void feed_batch(const BatchGemmParams& p, BatchShared<kColumns>& s,
                           const CUtensorMap* x_map, const CUtensorMap* w_map) {
  constexpr int kStages = BatchShared<kColumns>::kStages, kBox = kColumns / kBatchCluster;
  const auto rank = static_cast<int32_t>(cluster_rank());
  const int32_t items = p.tiles * p.splits;
  const uint64_t x_policy = l2_last(), w_policy = l2_first();
  const auto fetch_w = [&](int stage, const BatchItem& item, int32_t step) {
    barrier_expect(&s.full[stage], (kBatchRows + kColumns) * kBatchRowBytes);
    const int32_t row = kGated ? item.tile * kBox + rank * p.n : item.tile * kColumns + rank * kBox;
    tensor_copy_2d_all(s.w[stage] + rank * kBox * kBatchRowBytes, w_map, &s.full[stage],
                       step * kBatchDepth, row, (1 << kBatchCluster) - 1, w_policy);
  };
  const auto fetch_x = [&](int stage, int32_t step) {
    tensor_copy_2d(s.x[stage], x_map, &s.full[stage], step * kBatchDepth, rank * kBatchRows,
                   x_policy);
  };
  int32_t index = static_cast<int32_t>(blockIdx.x) / kBatchCluster;
  const BatchItem first(p, index);
  const int32_t ahead = min(kStages, first.end - first.begin);
  for (int i = 0; i < ahead; ++i) fetch_w(i, first, first.begin + i);
  wait_for_previous();
  for (int i = 0; i < ahead; ++i) fetch_x(i, first.begin + i);
  int32_t at = ahead;  // stages filled
  for (int32_t skip = ahead; index < items; index += p.clusters, skip = 0) {
    const BatchItem item(p, index);
    for (int32_t step = item.begin + skip; step < item.end; ++step, ++at) {
      const int stage = at % kStages;
      barrier_wait(&s.free[stage], (at / kStages & 1) ^ 1);
      fetch_w(stage, item, step);
      fetch_x(stage, step);
    }
  }
}

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
