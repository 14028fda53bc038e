// The kernel of large_gemm_sm90.cu and large_gemm_codes_sm90.cu, and its launch: see there.
#pragma once
#include <algorithm>

#include "cuda/device/tensor_map.h"
#include "cuda/gemm/float8_sums.cuh"
#include "cuda/gemm/large_gemm.h"
#include "cuda/gemm/large_gemm_tile.cuh"

namespace inferd::cuda {
namespace {

// Of x and w: 16-bit numbers, also where each group of rows of x has a w of its own, or e4m3 codes,
// whose 128 bytes of k are twice as many.
enum class LargeOperands { kHalves, kGroupedHalves, kFloat8Rows, kFloat8Blocks };

#ifdef INFERD_HOPPER

// A consumer's lane 4 g + t holds rows g and g + 8 of its warp's 16 and, of every 8 columns, the
// pair 2 t. Results are finished in pieces of 32 columns.
template <typename T, bool kGated, LargeOperands kOperands>
struct GemmConsumer {
  static constexpr bool kGroups = kOperands == LargeOperands::kGroupedHalves;
  static constexpr bool kCodes = kOperands != LargeOperands::kHalves && !kGroups;
  static constexpr int kSums = kTileColumns / 2;  // a thread
  static constexpr int kOutColumns = kGated ? kTileColumns / 2 : kTileColumns;
  static constexpr int kPieces = kOutColumns / 32;
  const LargeGemmArgs& p;
  GemmShared& s;
  const int group, thread, t;  // which consumer; thread of it; lane % 4
  float sums[kSums];
  uint4 old[kPieces][2];
  uint64_t y_policy;

  __device__ GemmConsumer(const LargeGemmArgs& args, GemmShared& shared)
      : p(args),
        s(shared),
        group(__shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 128 - 1, 0)),
        thread(threadIdx.x % 128),
        t(threadIdx.x % 4),
        y_policy(p.pass_y ? l2_first() : l2_normal()) {}

  // Tells every block of the cluster, since each writes to this stage of all.
  __device__ void release(int stage) {
    if (thread % kWarp == 0 && thread / kWarp < kCluster) {
      barrier_arrive_at(&s.free[stage], thread / kWarp);
    }
  }

  __device__ void multiply(int stage, bool add) {
    const MatrixDescriptor<kAtomBytes> a(s.x[stage] + group * 64 * kRowBytes);
    const MatrixDescriptor<kAtomBytes> b(s.w[stage]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      wgmma_wide<T>(sums, a.at(i * 32), b.at(i * 32), add || i != 0);
    }
    wgmma_commit();
  }

  // The same of codes, 128 of k, for half of the columns, into sums of their own.
  __device__ void multiply_codes(int stage, int half, float (&part)[kSums / 2]) {
    const MatrixDescriptor<kAtomBytes> a(s.x[stage] + group * 64 * kRowBytes);
    const MatrixDescriptor<kAtomBytes> b(s.w[stage] + half * (kTileColumns / 2) * kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kRowBytes / 32; ++i) {
      wgmma_float8(part, a.at(i * 32), b.at(i * 32), i != 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    hold(part);
  }

  // All of k of a tile of codes.
  __device__ void multiply_codes_tile(int32_t row0, int32_t column0, int32_t& at) {
    constexpr bool kBlocks = kOperands == LargeOperands::kFloat8Blocks;
    const Float8Tile<kTileColumns> tile(p.codes, {.m = p.m, .n = p.n, .gated = kGated},
                                        row0 + thread / kWarp * 16 + thread % kWarp / 4, column0);
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0.f;
    for (int32_t step = 0; step < p.k_steps; ++step, ++at) {
      Float8Factors factors;
      if constexpr (kBlocks) factors = tile.factors(step);
      barrier_wait(&s.full[at % kStages], at / kStages & 1);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float part[kSums / 2];
        multiply_codes(at % kStages, half, part);
        if (half == 1) release(at % kStages);
#pragma unroll
        for (int i = 0; i < kSums / 2; ++i) {
          float& sum = sums[half * (kSums / 2) + i];
          // A half of a tile lies in one block of w.
          sum = kBlocks ? fmaf(part[i], factors.x[i / 2 % 2] * factors.w[half][0], sum)
                        : sum + part[i];
        }
      }
      if (!kGated && p.add_to_y && step == max(p.k_steps - kFetch, 0)) prefetch_y(row0, column0);
    }
    if constexpr (!kBlocks) tile.scale_rows(sums, t);
  }

  // All of k of a tile.
  __device__ void multiply_tile(int32_t row0, int32_t column0, int32_t& at) {
    for (int32_t step = 0; step < p.k_steps; ++step, ++at) {
      barrier_wait(&s.full[at % kStages], at / kStages & 1);
      multiply(at % kStages, step != 0);
      if (step > 0) {
        wgmma_wait<1>();
        release((at - 1) % kStages);
      }
      if (!kGated && p.add_to_y) {
        if (step == max(p.k_steps - kFetch, 0)) prefetch_y(row0, column0);
        if (step == max(p.k_steps - kLoad, 0)) load(row0, column0);
      }
    }
    wgmma_wait<0>();
    release((at - 1) % kStages);
    hold(sums);
  }

  // Steps before a tile's end in which its y is brought to L2, and to registers.
  static constexpr int kFetch = 12, kLoad = 4;

  __device__ T* row_of_y(int32_t row) { return static_cast<T*>(p.y) + row * p.y_stride; }

  // Brings y of the tile to L2 in the last of the product.
  __device__ void prefetch_y(int32_t row0, int32_t column0) {
    constexpr int kLine = 64, kLines = kOutColumns / kLine;
#pragma unroll
    for (int i = 0; i < 64 * kLines / 128; ++i) {
      const int line = i * 128 + thread;
      const int32_t row = row0 + line / kLines, column = column0 + line % kLines * kLine;
      if (row < p.m && column < p.n) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row_of_y(row) + column));
      }
    }
  }

  // y as it was: 8 neighbours of every 32 columns. Under way while the last of the product is.
  __device__ void load(int32_t row0, int32_t column0) {
    const int32_t row = row0 + thread / kWarp * 16 + thread % kWarp / 4;
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int32_t column = column0 + c * 32 + t * 8;
        old[c][h] = {0, 0, 0, 0};
        if (row + h * 8 < p.m && column < p.n) {
          old[c][h] = *reinterpret_cast<const uint4*>(row_of_y(row + h * 8) + column);
        }
      }
    }
  }

  // The results of piece c, as pairs of columns: w[h][i] is of row g + 8 h, columns 8 i + 2 t.
  __device__ void finish(int c, int32_t column0, uint32_t (&w)[2][4]) {
    const bool add = !kGated && p.add_to_y;
    float2 bias[kGated ? 2 : 1][4] = {};
    if (p.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t column = column0 + c * 32 + i * 8 + t * 2;
        if (column < p.n) {
          const T* from = static_cast<const T*>(p.bias) + column;
          bias[0][i] = {to_float(from[0]), to_float(from[1])};
          if constexpr (kGated) bias[1][i] = {to_float(from[p.n]), to_float(from[p.n + 1])};
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (add) {
        const uint4& from = old[c][h];
        w[h][0] = from.x, w[h][1] = from.y, w[h][2] = from.z, w[h][3] = from.w;
        transpose_quad(w[h], t);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (c * 4 + i) * 4 + h * 2;
        float2 v = {sums[at] + bias[0][i].x, sums[at + 1] + bias[0][i].y};
        if constexpr (kGated) {
          v.x = silu(v.x) * (sums[at + kSums / 2] + bias[1][i].x);
          v.y = silu(v.y) * (sums[at + 1 + kSums / 2] + bias[1][i].y);
        } else if (add) {
          const float2 before = unpack2<T>(w[h][i]);
          v.x += before.x;
          v.y += before.y;
        }
        w[h][i] = pack2<T>(v.x, v.y);
      }
    }
  }

  // A warp's rows leave by themselves, while the next product begins.
  __device__ void store(int32_t row0, int32_t end, int32_t column0, const CUtensorMap* y_map) {
    constexpr int kPerPanel = kPanelColumns / 32, kRound = kPieces < 4 ? kPieces : 4;
    const int lane = thread % kWarp, warp = thread / kWarp;
    uint8_t(&to)[2][kPanelBytes] = s.y[group * 4 + warp];
    const int32_t row = row0 + warp * kPanelRows;
#pragma unroll
    for (int first = 0; first < kPieces; first += kRound) {
      if (lane == 0) tensor_store_wait();
      __syncwarp();
#pragma unroll
      for (int c = 0; c < kRound; ++c) {
        uint32_t w[2][4];
        finish(first + c, column0, w);
        uint8_t* const line = to[c / kPerPanel] + lane % 16 * 128;
        const int chunk = c % kPerPanel * 4 + lane / 16;
        store_matrix4(line + (chunk ^ lane % 8) * 16, w[0][0], w[1][0], w[0][1], w[1][1]);
        store_matrix4(line + ((chunk + 2) ^ lane % 8) * 16, w[0][2], w[1][2], w[0][3], w[1][3]);
      }
      async_proxy_fence();
      __syncwarp();
      if (lane == 0 && row < end) {
#pragma unroll
        for (int i = 0; i < kRound / kPerPanel; ++i) {
          const int32_t column = column0 + first * 32 + i * kPanelColumns;
          if (column < p.n) tensor_store_2d(y_map, to[i], column, row, y_policy);
        }
        tensor_store_commit();
      }
    }
  }

  __device__ void run(const CUtensorMap* y_map) {
    const int32_t rank = static_cast<int32_t>(cluster_rank());
    const int32_t tiles = p.rows * p.columns;
    int32_t at = 0;
    for (int32_t index = static_cast<int32_t>(blockIdx.x) / kCluster; index < tiles;
         index += p.clusters) {
      const TilePlace tile(p, index);
      const int32_t row0 = (tile.row * kCluster + rank) * kTileRows + group * 64;
      const int32_t column0 = tile.column * kOutColumns;
      if constexpr (kCodes) {
        multiply_codes_tile(row0, column0, at);
        if (!kGated && p.add_to_y) load(row0, column0);  // once there are registers
      } else {
        multiply_tile(row0, column0, at);
      }
      store(row0, p.m, column0, y_map);
    }
    tensor_store_wait();
  }

  __device__ void run_groups(const CUtensorMap* y_map) {
    const int32_t rank = static_cast<int32_t>(cluster_rank());
    const int32_t tiles = *p.group_count * p.columns;
    int32_t at = 0;
    for (int32_t index = static_cast<int32_t>(blockIdx.x) / kCluster; index < tiles;
         index += p.clusters) {
      const GroupPlace place(p, index);
      const int32_t row0 = place.tile.row + rank * kTileRows + group * 64;
      multiply_tile(row0, place.column * kOutColumns, at);
      store(row0, place.tile.end, place.column * kOutColumns, y_map);
    }
    tensor_store_wait();
  }
};

#endif  // INFERD_HOPPER

template <typename T, bool kGated, LargeOperands kOperands>
__global__ void __launch_bounds__(kGemmThreads, 1)
    large_gemm_kernel(const __grid_constant__ LargeGemmArgs p,
                      const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ CUtensorMap w_map,
                      const __grid_constant__ CUtensorMap y_map) {
#ifdef INFERD_HOPPER
  extern __shared__ uint8_t raw[];
  // The launcher adds 1 KB for the alignment, which is the same in all blocks of a cluster.
  GemmShared& s = *reinterpret_cast<GemmShared*>(raw + (0u - shared_address(raw)) % kAtomBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.free[i], kCluster * 2);  // the consumers of all
    }
    barrier_init_fence();
  }
  cluster_sync();
  let_next_start();
  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      if constexpr (kOperands == LargeOperands::kGroupedHalves) {
        produce_groups<kGated>(p, s, &x_map, &w_map);
      } else {
        produce<kGated>(p, s, &x_map, &w_map);
      }
    }
    __syncwarp();
  } else {
    take_registers<240>();
    wait_for_previous();
    GemmConsumer<T, kGated, kOperands> consumer(p, s);
    if constexpr (kOperands == LargeOperands::kGroupedHalves) {
      consumer.run_groups(&y_map);
    } else {
      consumer.run(&y_map);
    }
  }
  // A block may not end while another of its cluster arrives at its barriers.
  cluster_sync();
#endif
}

// How many groups have a w, and where their tiles are: see experts/grouped_gemm.h. None: w is one.
struct Groups {
  int32_t groups = 0, w_step = 0;
  const GroupTile* tiles = nullptr;
  const int32_t* count = nullptr;
  int32_t most = 0;
};

template <typename T, bool kGated, LargeOperands kOperands>
cudaError_t launch_form(const GemmArgs& given, const Launch& launch, const Groups& groups = {}) {
  const GemmArgs args = as_words(given);
  constexpr size_t kBytes = sizeof(GemmShared) + kAtomBytes;
  static_assert(kBytes <= 227 * 1024);
  constexpr int kOutColumns = kGated ? kTileColumns / 2 : kTileColumns;
  constexpr int kClusterRows = kTileRows * kCluster;
  const uint64_t k = args.k;
  CUtensorMap x_map, w_map, y_map;
  cudaError_t status =
      encode_tensor_map(args.type,
                        {.base = args.x,
                         .rank = 2,
                         .dims = {k, static_cast<uint64_t>(args.m)},
                         .stride_bytes = {static_cast<uint64_t>(args.x_stride) * 2},
                         .box = {kDepth, kTileRows}},
                        x_map);
  if (status != cudaSuccess) return status;
  status = encode_tensor_map(
      args.type,
      {.base = args.w.codes,
       .rank = 2,
       .dims = {k, groups.most > 0 ? static_cast<uint64_t>(groups.groups) * groups.w_step
                                   : static_cast<uint64_t>(args.n) * (kGated ? 2 : 1)},
       .stride_bytes = {k * 2},
       .box = {kDepth, kBoxRows}},
      w_map);
  if (status != cudaSuccess) return status;
  status =
      encode_tensor_map(args.type,
                        {.base = args.y,
                         .rank = 2,
                         .dims = {static_cast<uint64_t>(args.n), static_cast<uint64_t>(args.m)},
                         .stride_bytes = {static_cast<uint64_t>(args.y_stride) * 2},
                         .box = {kPanelColumns, kPanelRows}},
                        y_map);
  if (status != cudaSuccess) return status;
  int device, sms;
  status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  const int32_t rows = groups.most > 0 ? groups.most : (args.m + kClusterRows - 1) / kClusterRows;
  const int32_t columns = (args.n + kOutColumns - 1) / kOutColumns;
  const LargeGemmArgs p = {.y = args.y,
                           .bias = args.bias,
                           .y_stride = args.y_stride,
                           .m = args.m,
                           .n = args.n,
                           .k_steps = (args.k + kDepth - 1) / kDepth,
                           .rows = rows,
                           .columns = columns,
                           .band = kBandRows / kClusterRows,
                           .clusters = std::min(sms / kCluster, rows * columns),
                           .add_to_y = args.add_to_y,
                           .keep_x = kBandRows * k * 2 <= kKeptBytes,
                           .pass_y = static_cast<int64_t>(args.m) * args.n * 2 > kKeptBytes,
                           .codes = codes_view(given),
                           .groups = groups.tiles,
                           .group_count = groups.count,
                           .w_step = groups.w_step};
  return launch_kernel(large_gemm_kernel<T, kGated, kOperands>,
                       {.grid = dim3(static_cast<unsigned>(p.clusters * kCluster)),
                        .threads = kGemmThreads,
                        .shared_bytes = kBytes,
                        .cluster = kCluster},
                       launch, p, x_map, w_map, y_map);
}

template <typename T, LargeOperands kOperands>
cudaError_t launch_gated(const GemmArgs& args, const Launch& launch) {
  return args.gated ? launch_form<T, true, kOperands>(args, launch)
                    : launch_form<T, false, kOperands>(args, launch);
}

}  // namespace
}  // namespace inferd::cuda
