// 1. y = x w^T (+ bias) (+ y), or gated y = silu(x w_gate^T) * (x w_up^T), for many rows, for
//    Hopper. The gated form never writes the [m, 2 n] product.
// 2. x [m, k] and w [n, k] (gated: [2 n, k], gate rows first) f16 or bf16, y [m, n] of that type,
//    bias of it or null; rows 16-byte aligned, w packed: see gemm_args.h.
// 3. One block an SM, which takes tiles of y in a fixed order (large_gemm_tile.cuh), in clusters of
//    two whose tiles lie below one another:
//
//      warpgroup 0   one thread: its block's x, half of the columns of w for both blocks
//      warpgroup 1   rows 0 .. 63 of a 128 x 256 tile, or the even tiles of 128 x 128
//      warpgroup 2   rows 64 .. 127, or the odd tiles: one stores while the other multiplies
//
//    The 256 columns of a gated tile are 128 gate rows and the same 128 up rows of w, so that a
//    thread holds both factors of an output.
// 4. 192 KB: 4 stages of 64 of k (6 for 128 x 128); 32 KB through which y leaves by tensor stores,
//    which run under the next product. 240 registers a consumer thread, 128 of them sums, 64 y to
//    be added; 24 in the producer.
// 5. f32 sums, bias, gate and addition, rounded once to 16 bits: relative error below 2^-8 (bf16)
//    and 2^-11 (f16). All variants give the same bits.
// 6. Compute capability 9.0; n, k and strides multiples of 8. Else cudaErrorInvalidValue.
// 7. 2 m n k flops (gated: 4), bound by power: an H200 holds 690 W at 1.2 .. 1.45 GHz. bf16,
//    m = 16384, each kernel by itself for half a second, in turn with cuBLASLt, TFLOP/s (of 989):
//      6144 x 4096 652 (cuBLASLt 693), 4096 x 4096 adding 627 (661), 4096 x 14336 adding 663 (673),
//      14336 x 4096 gated 671 (product alone 698, with gated_mul 662), 8192^3 658 (684)
//    These are of 16-byte stores from registers. They cost 2.7 us a tile (the difference to
//    cuBLASLt divided by tiles is the same for k of 4096 and 14336), probably because all SMs write
//    at once. The tensor stores that replaced them, the earlier loads of y and the hints to L2
//    (keep x of a band, pass y) are not measured yet. In bursts, before the limit is felt, 128x128
//    in turns reaches 700 .. 750.
// 8. Warp specialisation and turns as in CUTLASS's cooperative and ping-pong kernels; gated tiles
//    of two halves as in TensorRT-LLM's gemm_swiglu.
// 9. Tried, H200, m = 16384, TFLOP/s of 6144x4096 / 4096x4096 adding / gated / 4096x14336 adding:
//      128x256, cluster of 2, bands of 2048 rows       652 / 627 / 671 / 663
//      bands of 4096 rows: 27 % more device memory     642 / 617 / 656 / 656
//      the same, no cluster: more of L2                637 / 608 / 649 / 642
//      256x128, cluster of 2, bands of 4096            633 / 605 / 650 / 641
//      128x128 in turns, cluster of 2                  638 / 614 / 647 / 616
//      the same, bands of 4096 rows (7 stages alike)   596 / 576 / 602 / 586
//      64x256 in turns, cluster of 2, bands of 4096    594 / 573 / 604 / 587
//    Device memory read, 4096 rows, gated, bands of 2048 / 4096: 948 / 1204 MB, of which x and w
//    are 268: L2 keeps nothing of x from column to column; a GB costs 77 us of 1378, a GB of L2 22.
//    Clusters of 4, where an SM in 33 stays idle, and 128x128 without turns: 5 .. 10 % less
//    (bursts). Stores that pass by L2 (st.cs): no change. Arriving at a cluster's barriers with
//    .release.cluster, a fence of all memory: 530 instead of 680.
#include "large_gemm.h"
#include "large_gemm_tile.cuh"
#include "tensor_map.h"

namespace inferd::cuda {
namespace {

#ifdef INFERD_HOPPER

template <typename T>
__device__ inline float2 unpack2(uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
  }
}

// A consumer's lane 4 g + t holds rows g and g + 8 of its warp's 16 and, of every 8 columns, the
// pair 2 t. Results are finished in pieces of 32 columns.
template <typename T, typename Shape, bool kGated>
struct GemmConsumer {
  static constexpr int kRowBlocks = Shape::kRowBlocks, kStages = Shape::kStages;
  static constexpr int kSums = Shape::kColumns / 2;  // a thread and row block
  static constexpr int kOutColumns = kGated ? Shape::kColumns / 2 : Shape::kColumns;
  static constexpr int kPieces = kOutColumns / 32;
  const LargeGemmArgs& p;
  GemmShared<Shape>& s;
  const int group, thread, t;  // which consumer; thread of it; lane % 4
  float sums[kRowBlocks][kSums];
  uint4 old[kRowBlocks][kPieces][2];
  uint64_t y_policy;

  __device__ GemmConsumer(const LargeGemmArgs& args, GemmShared<Shape>& shared)
      : p(args),
        s(shared),
        group(__shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 128 - 1, 0)),
        thread(threadIdx.x % 128),
        t(threadIdx.x % 4),
        y_policy(p.pass_y ? l2_first() : l2_normal()) {}

  // Tells every block of the cluster, since each writes to this stage of all.
  __device__ void release(int stage) {
    if constexpr (Shape::kCluster > 1) {
      if (thread % kWarp == 0 && thread / kWarp < Shape::kCluster) {
        barrier_arrive_at(&s.free[stage], thread / kWarp);
      }
    } else {
      if (thread == 0) barrier_arrive(&s.free[stage]);
    }
  }

  __device__ void multiply(int stage, bool add) {
    const MatrixDescriptor<kAtomBytes> a(s.x[stage] +
                                         (Shape::kTurns ? 0 : group * kRowBlocks * 64 * kRowBytes));
    const MatrixDescriptor<kAtomBytes> b(s.w[stage]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r) {
        wgmma_shared<T>(sums[r], a.at(r * 64 * kRowBytes + i * 32), b.at(i * 32), add || i != 0);
      }
    }
    wgmma_commit();
  }

  __device__ T* row_of_y(int32_t row) { return static_cast<T*>(p.y) + row * p.y_stride; }

  // Of this thread in a row block; its other one is 8 below.
  __device__ int32_t first_row(int r, int32_t row0) {
    return row0 + r * 64 + thread / kWarp * 16 + thread % kWarp / 4;
  }

  // Brings y of the tile to L2 in the last of the product.
  __device__ void prefetch_y(int32_t row0, int32_t column0) {
    constexpr int kLine = 64, kLines = kOutColumns / kLine;
#pragma unroll
    for (int i = 0; i < kRowBlocks * 64 * kLines / 128; ++i) {
      const int line = i * 128 + thread;
      const int32_t row = row0 + line / kLines, column = column0 + line % kLines * kLine;
      if (row < p.m && column < p.n) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row_of_y(row) + column));
      }
    }
  }

  // y as it was: 8 neighbours of every 32 columns. Under way while the last of the product is.
  __device__ void load(int r, int32_t row0, int32_t column0) {
    const int32_t row = first_row(r, row0);
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int32_t column = column0 + c * 32 + t * 8;
        old[r][c][h] = {0, 0, 0, 0};
        if (row + h * 8 < p.m && column < p.n) {
          old[r][c][h] = *reinterpret_cast<const uint4*>(row_of_y(row + h * 8) + column);
        }
      }
    }
  }

  // The results of piece c, as pairs of columns: w[h][i] is of row g + 8 h, columns 8 i + 2 t.
  __device__ void finish(int r, int c, int32_t column0, uint32_t (&w)[2][4]) {
    const float(&d)[kSums] = sums[r];
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
        const uint4& from = old[r][c][h];
        w[h][0] = from.x, w[h][1] = from.y, w[h][2] = from.z, w[h][3] = from.w;
        transpose_quad(w[h], t);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (c * 4 + i) * 4 + h * 2;
        float2 v = {d[at] + bias[0][i].x, d[at + 1] + bias[0][i].y};
        if constexpr (kGated) {
          v.x = silu(v.x) * (d[at + kSums / 2] + bias[1][i].x);
          v.y = silu(v.y) * (d[at + 1 + kSums / 2] + bias[1][i].y);
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
  __device__ void store(int r, int32_t row0, int32_t column0, const CUtensorMap* y_map) {
    constexpr int kPerPanel = kPanelColumns / 32, kRound = kPieces < 4 ? kPieces : 4;
    const int lane = thread % kWarp, warp = thread / kWarp;
    uint8_t(&to)[2][kPanelBytes] = s.y[group * 4 + warp];
    const int32_t row = row0 + r * 64 + warp * kPanelRows;
#pragma unroll
    for (int first = 0; first < kPieces; first += kRound) {
      if (lane == 0) tensor_store_wait();
      __syncwarp();
#pragma unroll
      for (int c = 0; c < kRound; ++c) {
        uint32_t w[2][4];
        finish(r, first + c, column0, w);
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
    const int32_t rank = Shape::kCluster > 1 ? static_cast<int32_t>(cluster_rank()) : 0;
    const int32_t clusters = static_cast<int32_t>(gridDim.x) / Shape::kCluster;
    const int32_t tiles = p.rows * p.columns;
    int32_t at = 0;
    int turn = 0;
    for (int32_t index = static_cast<int32_t>(blockIdx.x) / Shape::kCluster; index < tiles;
         index += clusters) {
      if (Shape::kTurns && (turn++ & 1) != group) {
        at += p.k_steps;
        continue;
      }
      const TilePlace tile(p, index);
      const int32_t row0 = (tile.row * Shape::kCluster + rank) * Shape::kRows +
                           (Shape::kTurns ? 0 : group * kRowBlocks * 64);
      const int32_t column0 = tile.column * kOutColumns;
      // A wait by parity tells a phase from the next one only: the other consumer has to have seen
      // its last stage before this one waits for what comes after.
      if (Shape::kTurns) barrier_wait(&s.turn[group], ((turn - 1) / 2 + group + 1) & 1);
      for (int32_t step = 0; step < p.k_steps; ++step, ++at) {
        barrier_wait(&s.full[at % kStages], at / kStages & 1);
        multiply(at % kStages, step != 0);
        if (Shape::kTurns && step == p.k_steps - 1 && thread == 0) {
          barrier_arrive(&s.turn[1 - group]);
        }
        if (step > 0) {
          wgmma_wait<1>();
          release((at - 1) % kStages);
        }
        if (!kGated && p.add_to_y) {
          if (step == max(p.k_steps - kFetch, 0)) prefetch_y(row0, column0);
          if (step == max(p.k_steps - kLoad, 0)) {
#pragma unroll
            for (int r = 0; r < kRowBlocks; ++r) load(r, row0, column0);
          }
        }
      }
      wgmma_wait<0>();
      release((at - 1) % kStages);
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r) hold(sums[r]);
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r) store(r, row0, column0, y_map);
    }
    tensor_store_wait();
  }
};

#endif  // INFERD_HOPPER

template <typename T, typename Shape, bool kGated>
__global__ void __launch_bounds__(kGemmThreads, 1)
    large_gemm_kernel(const __grid_constant__ LargeGemmArgs p,
                      const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ CUtensorMap w_map,
                      const __grid_constant__ CUtensorMap y_map) {
#ifdef INFERD_HOPPER
  extern __shared__ uint8_t raw[];
  // The launcher adds 1 KB for the alignment, which is the same in all blocks of a cluster.
  GemmShared<Shape>& s =
      *reinterpret_cast<GemmShared<Shape>*>(raw + (0u - shared_address(raw)) % kAtomBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.free[i], Shape::kCluster * (Shape::kTurns ? 1 : 2));
    }
    barrier_init(&s.turn[0], 1);
    barrier_init(&s.turn[1], 1);
    barrier_init_fence();
  }
  if constexpr (Shape::kCluster > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  let_next_start();
  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x == 0) produce<Shape, kGated>(p, s, &x_map, &w_map);
    __syncwarp();
  } else {
    take_registers<240>();
    wait_for_previous();
    GemmConsumer<T, Shape, kGated>(p, s).run(&y_map);
  }
  // A block may not end while another of its cluster arrives at its barriers.
  if constexpr (Shape::kCluster > 1) cluster_sync();
#endif
}

template <typename T, typename Shape, bool kGated>
cudaError_t launch_shape(const GemmArgs& args, bool hints, const Launch& launch) {
  constexpr size_t kBytes = sizeof(GemmShared<Shape>) + kAtomBytes;
  static_assert(Shape::kCluster <= 2, "pairs of blocks fill every multiprocessor, more may not");
  static_assert(kBytes <= 227 * 1024);
  constexpr int kOutColumns = kGated ? Shape::kColumns / 2 : Shape::kColumns;
  constexpr int kClusterRows = Shape::kRows * Shape::kCluster;
  const uint64_t k = args.k;
  CUtensorMap x_map, w_map, y_map;
  cudaError_t status =
      encode_tensor_map(args.type,
                        {.base = args.x,
                         .rank = 2,
                         .dims = {k, static_cast<uint64_t>(args.m)},
                         .stride_bytes = {static_cast<uint64_t>(args.x_stride) * 2},
                         .box = {kDepth, Shape::kRows}},
                        x_map);
  if (status != cudaSuccess) return status;
  status = encode_tensor_map(args.type,
                             {.base = args.w,
                              .rank = 2,
                              .dims = {k, static_cast<uint64_t>(args.n) * (kGated ? 2 : 1)},
                              .stride_bytes = {k * 2},
                              .box = {kDepth, Shape::kBoxRows}},
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
  const LargeGemmArgs p = {
      .y = args.y,
      .bias = args.bias,
      .y_stride = args.y_stride,
      .m = args.m,
      .n = args.n,
      .k_steps = (args.k + kDepth - 1) / kDepth,
      .rows = (args.m + kClusterRows - 1) / kClusterRows,
      .columns = (args.n + kOutColumns - 1) / kOutColumns,
      .band = kBandRows / kClusterRows,
      .add_to_y = args.add_to_y,
      .keep_x = hints && kBandRows * k * 2 <= kKeptBytes,
      .pass_y = hints && static_cast<int64_t>(args.m) * args.n * 2 > kKeptBytes};
  int32_t clusters = sms / Shape::kCluster;
  if (p.rows * p.columns < clusters) clusters = p.rows * p.columns;
  return launch_kernel(large_gemm_kernel<T, Shape, kGated>,
                       {.grid = dim3(static_cast<unsigned>(clusters * Shape::kCluster)),
                        .threads = kGemmThreads,
                        .shared_bytes = kBytes,
                        .cluster = Shape::kCluster},
                       launch, p, x_map, w_map, y_map);
}

template <typename Shape>
cudaError_t launch_any(const GemmArgs& args, bool hints, const Launch& launch) {
  if (args.type == Half::kBF16) {
    return args.gated ? launch_shape<__nv_bfloat16, Shape, true>(args, hints, launch)
                      : launch_shape<__nv_bfloat16, Shape, false>(args, hints, launch);
  }
  return args.gated ? launch_shape<__half, Shape, true>(args, hints, launch)
                    : launch_shape<__half, Shape, false>(args, hints, launch);
}

struct Variant {
  const char* name;
  cudaError_t (*launch)(const GemmArgs&, bool hints, const Launch&);
  bool hints;  // to L2
};

constexpr Variant kVariants[] = {
    {"128x256, cluster of 2", launch_any<GemmShape<1, 256, 4, 2, false>>, false},
    {"128x256, cluster of 2, hints", launch_any<GemmShape<1, 256, 4, 2, false>>, true},
    {"128x256", launch_any<GemmShape<1, 256, 4, 1, false>>, false},
    {"128x128 in turns, cluster of 2", launch_any<GemmShape<2, 128, 6, 2, true>>, false},
};
constexpr int32_t kNumVariants = sizeof(kVariants) / sizeof(kVariants[0]);

bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

bool large_gemm_takes(const GemmArgs& args) {
  int device, major = 0, minor = 0;
  return args.m > 0 && args.n > 0 && args.k > 0 && args.n % 8 == 0 && args.k % 8 == 0 &&
         args.x_stride % 8 == 0 && args.y_stride % 8 == 0 && args.out == GemmOut::kHalf &&
         !(args.gated && args.add_to_y) && aligned16(args.x) && aligned16(args.w) &&
         aligned16(args.y) && cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0;
}

int32_t large_gemm_variants(const GemmArgs&) { return kNumVariants; }

const char* large_gemm_variant_name(int32_t variant) { return kVariants[variant].name; }

cudaError_t large_gemm(const GemmArgs& args, int32_t variant, const Launch& launch) {
  if (!large_gemm_takes(args) || variant < 0 || variant >= kNumVariants) {
    return cudaErrorInvalidValue;
  }
  return kVariants[variant].launch(args, kVariants[variant].hints, launch);
}

}  // namespace inferd::cuda
