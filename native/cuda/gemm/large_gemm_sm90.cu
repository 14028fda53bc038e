// 1. y = x w^T (+ bias) (+ y), or gated y = silu(x w_gate^T) * (x w_up^T), for many rows, for
//    Hopper. The gated form never writes the [m, 2 n] product.
// 2. x [m, k] and w [n, k] (gated: [2 n, k], gate rows first) f16 or bf16, y [m, n] of that type,
//    bias of it or null; rows 16-byte aligned, w packed: see gemm_args.h.
// 3. One block an SM, which takes tiles of 128 rows of x by 256 rows of w in a fixed order
//    (large_gemm_tile.cuh), in clusters of two whose tiles lie below one another:
//
//      warpgroup 0   one thread: its block's 128 rows of x, 128 of the rows of w for both blocks
//      warpgroup 1   rows 0 .. 63 of the tile: product, then bias, gate, addition, store
//      warpgroup 2   rows 64 .. 127
//
//    y of a tile is 128 x 256, or, gated, 128 x 128: 128 gate rows of w and the same 128 up rows,
//    so that a thread holds both factors of an output.
// 4. 192 KB for 4 stages of 64 of k; 32 KB through which y leaves, 4 KB a warp, by tensor stores
//    that run under the next product. 240 registers a consumer thread, of which 128 are sums and 64
//    y to be added, loaded under the last of the product; 24 in the producer. No spills.
// 5. f32 sums, bias, gate and addition, rounded once to 16 bits: relative error below 2^-8 (bf16)
//    and 2^-11 (f16). The same bits every time.
// 6. Compute capability 9.0; n, k and strides multiples of 8. Else cudaErrorInvalidValue.
// 7. 2 m n k flops (gated: 4), bound by power: an H200 holds 690 W at 1.2 .. 1.45 GHz. bf16, ours /
//    cuBLASLt (gated: with gated_mul; product alone), TFLOP/s of 989, in turn, each by itself for
//    0.5 s, up to 4096 rows 0.2 s, of which the second half counts:
//      rows    6144x4096   4096x4096 adding   4096x14336 adding   14336x4096 gated
//      16384   659 / 707       631 / 675          667 / 683       684 / 671 (699)
//      4096    663 / 686       635 / 642          679 / 656       674 / 669 (707)
//      2048    652 / 656       625 / 637          671 / 653       675 / 655 (680)
//      1024    564 / 621       617 / 576          672 / 610       675 / 638 (678)
//      512     538 / 592       396 / 540          447 / 617       596 / 625 (669)
//    8192^3 in five runs: 671 .. 681 / 690 .. 698. Turns of one run differ by up to 4 %, runs by 3:
//    compare within a run only. With 16384 rows and no gate a tile takes 3.6 .. 4.2 us more than
//    cuBLASLt's time shared out, for k of 4096 and 14336 alike: what is left to gain is at its end.
// 8. Warp specialisation as in CUTLASS's cooperative kernels; gated tiles of two halves as in
//    TensorRT-LLM's gemm_swiglu.
// 9. Tried, H200, m = 16384, TFLOP/s of 6144x4096 / 4096x4096 adding / gated / 4096x14336 adding,
//    below cuBLASLt (gated: with gated_mul) of the same run:
//      run 1, y through shared memory: cuBLASLt        707 / 675 / 671 / 683
//        kept: 128x256, cluster of 2, hints to L2      659 / 631 / 684 / 667
//        no hints                                      654 / 630 / 678 / 668
//        no hints, no cluster: more of L2              631 / 600 / 656 / 645
//        no hints, 128x128, consumers in turns         641 / 597 / 658 / 617
//      run 2, y in 16 bytes from registers: cuBLASLt   714 / 676 / 678 / 682
//        128x256, cluster of 2                         662 / 637 / 686 / 680
//        no cluster                                    658 / 629 / 681 / 664
//        128x128, consumers in turns                   651 / 628 / 657 / 635
//      run 3, as run 2: cuBLASLt                       693 / 661 / 662 / 673
//        128x256, cluster of 2                         652 / 627 / 671 / 663
//        bands of 4096 rows: 27 % more device memory   642 / 617 / 656 / 656
//        bands of 4096, 256x128, cluster of 2          633 / 605 / 650 / 641
//        bands of 4096, 64x256, consumers in turns     594 / 573 / 604 / 587
//    In percent of cuBLASLt of its run the kept one is at 93 / 93 / 102 / 98, the stores from
//    registers at 93 .. 94 / 94 .. 95 / 101 / 98 .. 100: no more than a gain where gated and a loss
//    where y is added. With fewer rows only run 1's were measured, and the kept one was the best of
//    them or within 0.3 %, but for 128x128 in turns where that still lost to cuBLASLt: 512 rows
//    (4096x4096 511, 4096x14336 572) and 1024 rows (6144x4096 589).
//    Device memory read, 4096 rows, gated, no hints, bands of 2048 / 4096: 948 / 1204 MB, of which
//    x and w are 268: L2 keeps nothing of x from column to column. Clusters of 4, where an SM in 33
//    stays idle, and 128x128 without turns: 5 .. 10 % less (bursts). Stores that pass by L2
//    (st.cs): no change. Arriving at a cluster's barriers with .release.cluster, a fence of all
//    memory: 530 instead of 680.
#include "cuda/device/tensor_map.h"
#include "cuda/gemm/large_gemm.h"
#include "cuda/gemm/large_gemm_tile.cuh"

namespace inferd::cuda {
namespace {

#ifdef INFERD_HOPPER

// A consumer's lane 4 g + t holds rows g and g + 8 of its warp's 16 and, of every 8 columns, the
// pair 2 t. Results are finished in pieces of 32 columns.
template <typename T, bool kGated>
struct GemmConsumer {
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
  __device__ void store(int32_t row0, int32_t column0, const CUtensorMap* y_map) {
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
      if (lane == 0 && row < p.m) {
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
    // Steps before a tile's end in which its y is brought to L2, and to registers.
    constexpr int kFetch = 12, kLoad = 4;
    const int32_t rank = static_cast<int32_t>(cluster_rank());
    const int32_t tiles = p.rows * p.columns;
    int32_t at = 0;
    for (int32_t index = static_cast<int32_t>(blockIdx.x) / kCluster; index < tiles;
         index += p.clusters) {
      const TilePlace tile(p, index);
      const int32_t row0 = (tile.row * kCluster + rank) * kTileRows + group * 64;
      const int32_t column0 = tile.column * kOutColumns;
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
      store(row0, column0, y_map);
    }
    tensor_store_wait();
  }
};

#endif  // INFERD_HOPPER

template <typename T, bool kGated>
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
    if (threadIdx.x == 0) produce<kGated>(p, s, &x_map, &w_map);
    __syncwarp();
  } else {
    take_registers<240>();
    wait_for_previous();
    GemmConsumer<T, kGated>(p, s).run(&y_map);
  }
  // A block may not end while another of its cluster arrives at its barriers.
  cluster_sync();
#endif
}

template <typename T, bool kGated>
cudaError_t launch_form(const GemmArgs& args, const Launch& launch) {
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
  status = encode_tensor_map(args.type,
                             {.base = args.w.codes,
                              .rank = 2,
                              .dims = {k, static_cast<uint64_t>(args.n) * (kGated ? 2 : 1)},
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
  const int32_t rows = (args.m + kClusterRows - 1) / kClusterRows;
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
                           .pass_y = static_cast<int64_t>(args.m) * args.n * 2 > kKeptBytes};
  return launch_kernel(large_gemm_kernel<T, kGated>,
                       {.grid = dim3(static_cast<unsigned>(p.clusters * kCluster)),
                        .threads = kGemmThreads,
                        .shared_bytes = kBytes,
                        .cluster = kCluster},
                       launch, p, x_map, w_map, y_map);
}

bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

bool large_gemm_takes(const GemmArgs& args) {
  int device, major = 0, minor = 0;
  return args.m > 0 && args.n > 0 && args.k > 0 && args.n % 8 == 0 && args.k % 8 == 0 &&
         args.x_stride % 8 == 0 && args.y_stride % 8 == 0 && args.out == GemmOut::kHalf &&
         !(args.gated && args.add_to_y) && !args.norm_x && aligned16(args.x) &&
         aligned16(args.w.codes) && aligned16(args.y) && cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0 && INFERD_MOST_MAJOR >= 9;
}

cudaError_t large_gemm(const GemmArgs& args, const Launch& launch) {
  if (!large_gemm_takes(args)) return cudaErrorInvalidValue;
  if (args.type == Half::kBF16) {
    return args.gated ? launch_form<__nv_bfloat16, true>(args, launch)
                      : launch_form<__nv_bfloat16, false>(args, launch);
  }
  return args.gated ? launch_form<__half, true>(args, launch)
                    : launch_form<__half, false>(args, launch);
}

}  // namespace inferd::cuda
