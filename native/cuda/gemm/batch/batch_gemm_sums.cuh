// The consumers of batch_gemm_sm90.cu: the products, the sums of blocks that share k, and what is
// done to sums on their way to y. Device code of that file alone.
#pragma once
#include "cuda/gemm/batch/batch_gemm_tile.cuh"

namespace inferd::cuda {

#ifdef INFERD_HOPPER

// A warpgroup: 64 rows of a tile. Lane 4 g + t holds rows g and g + 8 of its warp's 16 and, of
// every 8 columns, the pair 2 t. Results are finished in pieces of 32 columns.
template <typename T, bool kGated, int kColumns>
struct BatchConsumer {
  using Shared = BatchShared<kColumns>;
  static constexpr int kStages = Shared::kStages;
  static constexpr int kSums = kColumns / 2;  // a thread
  static constexpr int kOutColumns = kGated ? kColumns / 2 : kColumns;
  static constexpr int kPieces = (kOutColumns + 31) / 32;
  static constexpr int kBarrier = 1;  // of both consumers
  const BatchGemmParams& p;
  Shared& s;
  const int group, thread, t;  // which consumer; thread of it; lane % 4
  int stage = 0;
  uint32_t parity = 0;
  float sums[kSums];
  uint4 old[kGated ? 1 : kPieces][2];

  __device__ BatchConsumer(const BatchGemmParams& params, Shared& shared)
      : p(params),
        s(shared),
        group(__shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 128 - 1, 0)),
        thread(threadIdx.x % 128),
        t(threadIdx.x % 4) {}

  // Row g of this thread.
  __device__ int32_t row() const {
    return static_cast<int32_t>(cluster_rank()) * kBatchRows + group * 64 + thread / kWarp * 16 +
           thread % kWarp / 4;
  }
  __device__ T* row_of_y(int32_t row) const { return static_cast<T*>(p.y) + row * p.y_stride; }

  // Tells every block of the cluster, since each writes to this stage of all.
  __device__ void release(int of) {
    if (thread % kWarp == 0 && thread / kWarp < kBatchCluster)
      barrier_arrive_at(&s.free[of], thread / kWarp);
  }

  __device__ void multiply(const BatchItem& item) {
    int before = 0;
    for (int32_t step = item.begin; step < item.end; ++step) {
      const MatrixDescriptor<kBatchAtomBytes> a(s.x[stage] + group * 64 * kBatchRowBytes);
      const MatrixDescriptor<kBatchAtomBytes> b(s.w[stage]);
      barrier_wait(&s.full[stage], parity);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kBatchDepth / 16; ++i)
        wgmma_wide<T>(sums, a.at(i * 32), b.at(i * 32), step != item.begin || i != 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (step != item.begin) release(before);
      before = stage;
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    wgmma_wait<0>();
    hold_all(sums);
    release(before);
  }

  // y as it was: 8 neighbours of every 32 columns.
  __device__ void load(int32_t row, int32_t column0) {
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int32_t column = column0 + c * 32 + t * 8;
        old[c][h] = {0, 0, 0, 0};
        if (row + h * 8 < p.m && column < p.n)
          old[c][h] = *reinterpret_cast<const uint4*>(row_of_y(row + h * 8) + column);
      }
    }
  }

  // Blocks that share k: each leaves its sums; the last one to come adds all of them up, in the
  // order of the parts, and has the tile then. Whether this block is that one. None waits, so it
  // does not matter how many run at a time.
  __device__ bool gather(const BatchItem& item) {
    constexpr int kQuads = kSums / 4, kThreads = 256;
    const int place = group * 128 + thread;
    const int64_t block = int64_t{item.tile} * kBatchCluster + static_cast<int32_t>(cluster_rank());
    float4* const all = p.partials + block * p.splits * (kQuads * kThreads) + place;
    float4* const mine = all + item.part * (kQuads * kThreads);
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
      __stcg(mine + q * kThreads,
             make_float4(sums[q * 4], sums[q * 4 + 1], sums[q * 4 + 2], sums[q * 4 + 3]));
    __threadfence();
    group_sync<kThreads>(kBarrier);
    if (place == 0) {
      int32_t* const ticket = p.tickets + block;
      s.last = atomicAdd(ticket, 1) == p.splits - 1;
      if (s.last) *ticket = 0;  // for the next launch
    }
    group_sync<kThreads>(kBarrier);
    if (!s.last) return false;
    __threadfence();
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0.f;
#pragma unroll 1
    for (int32_t part = 0; part < p.splits; ++part) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const float4 v = __ldcg(all + part * (kQuads * kThreads) + q * kThreads);
        sums[q * 4] += v.x;
        sums[q * 4 + 1] += v.y;
        sums[q * 4 + 2] += v.z;
        sums[q * 4 + 3] += v.w;
      }
    }
    return true;
  }

  // Piece c of the tile to y.
  __device__ void finish(int c, int32_t row, int32_t column0) {
    float2 bias[2][4] = {};
    if (p.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t column = column0 + c * 32 + i * 8 + t * 2;
        if (column >= p.n) continue;
        const T* from = static_cast<const T*>(p.bias) + column;
        bias[0][i] = {to_float(from[0]), to_float(from[1])};
        if constexpr (kGated) bias[1][i] = {to_float(from[p.n]), to_float(from[p.n + 1])};
      }
    }
    const int32_t column_end = min(p.n, column0 + kOutColumns);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t w[4] = {};
      if constexpr (!kGated) {
        if (p.add_to_y) {
          w[0] = old[c][h].x, w[1] = old[c][h].y, w[2] = old[c][h].z, w[3] = old[c][h].w;
          transpose_quad(w, t);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (c * 32 + i * 8 >= kOutColumns) continue;
        const int at = (c * 4 + i) * 4 + h * 2;
        float2 v = {sums[at] + bias[0][i].x, sums[at + 1] + bias[0][i].y};
        if constexpr (kGated) {
          v.x = silu(v.x) * (sums[at + kSums / 2] + bias[1][i].x);
          v.y = silu(v.y) * (sums[at + 1 + kSums / 2] + bias[1][i].y);
        } else {
          const float2 before = unpack2<T>(w[i]);
          v.x += before.x;
          v.y += before.y;
        }
        w[i] = pack2<T>(v.x, v.y);
      }
      transpose_quad(w, t);
      const int32_t column = column0 + c * 32 + t * 8;
      if (row + h * 8 < p.m && column < column_end) {
        *reinterpret_cast<uint4*>(row_of_y(row + h * 8) + column) = {w[0], w[1], w[2], w[3]};
      }
    }
  }

  __device__ void run() {
    const int32_t items = p.tiles * p.splits, row = this->row();
    for (int32_t index = static_cast<int32_t>(blockIdx.x) / kBatchCluster; index < items;
         index += p.clusters) {
      const BatchItem item(p, index);
      const int32_t column0 = item.tile * kOutColumns;
      multiply(item);
      if constexpr (!kGated) {
        if (p.splits > 1 && !gather(item)) continue;
        if (p.add_to_y) load(row, column0);
      }
#pragma unroll
      for (int c = 0; c < kPieces; ++c) finish(c, row, column0);
    }
  }
};

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
