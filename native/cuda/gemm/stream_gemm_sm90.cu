// 1. y = x w^T (+ bias) (+ y), or y = silu(x w_gate^T) * (x w_up^T), for the 17 to 128 rows of a
//    decode batch, in one launch.
// 2. x [m, k] f16 or bf16, 16-byte aligned rows; w [n, k] ([2 n, k] gated) of the same type,
//    packed, 16-byte aligned; y [m, n] of that type or f32, any stride; bias [n] ([2 n]) of y's
//    type.
// 3. A block takes tiles of 64 or 128 tokens x 48 to 256 rows of w, tokens as the 64-row side of
//    wgmma, so that tiles divide n in steps of 16 and y needs no transposing. A gated tile is half
//    gate rows and half the matching up rows: one thread holds both factors.
//
//      warps 0 .. 4 g - 1   g warpgroups: 64 tokens x all rows of the tile
//      last warp            one thread asks for the boxes of w and x
//
//    Blocks of a cluster lie side by side along n (`across`: each fetches part of the tokens, for
//    all), m (`down`: each fetches part of the weights, for all) and k (`splits`). Splits send each
//    other the sums of the columns that the other stores, st.async, counted by a barrier; the order
//    of addition is fixed. Without splits blocks take tiles in turn and the queue runs on.
// 4. Shared memory: 2 to 4 stages of x and as many of w as fit in 227 KB, or in 113 KB when two
//    blocks, of this kernel or the next, share a multiprocessor. A stage is 64 values of k (128 in
//    narrow tiles), 128-byte swizzle. 77 to 189 registers.
// 5. f32 accumulation; one rounding at the end, also of the gated product. Relative error of the
//    exact product of the rounded inputs 2^-9 (bf16), 2^-11 (f16). The same bits run to run.
// 6. Compute capability 9.0; k and x_stride multiples of 8; gated only to 16-bit y, without splits.
//    Else cudaErrorInvalidValue.
// 7. Bytes 2 n k: bound by memory. H200, back to back with early starts, best cut, us (beside it
//    cuBLASLt's best of 8, with the silu kernel for gate_up; the read ceiling of w), taken before
//    the last change of (9) and, above 128 rows, with tiles of 192 tokens that are gone:
//
//      m      qkv             o              gate_up         down            head
//      32     15.3 (15.8 11)  12.5 (13.3 7)  59.5 (64.8 52)  32.6 (32.8 26)  254 (259 232)
//      64     15.5 (15.5)     12.6 (11.8)    60.0 (62.3)     32.6 (34.0)     274 (264)
//      128    18.8 (16.4)     17.1 (13.0)    61.7 (67.7)     36.6 (37.1)     300 (280)
//      192    21.5 (20.2)     19.3 (20.3)    89.8 (78.4)     42.1 (43.8)     330 (326)
//      256    23.7 (20.6)     24.0 (15.8)    104  (97.5)     62.7 (48.8)     404 (388)
//
//    What is left over memory is the start and the end: 3 to 9 us in which no weights arrive.
// 8. Split k with exchange in shared memory of a cluster, warps of different roles: CUTLASS 3
//    (Thakkar et al. 2023) and DeepGEMM; early starts as in small_gemm.cu.
// 9. Tried, H200, us:
//    - a release at cluster scope with each stage given back: a fence of all memory, 1 us a stage;
//      gate_up at m = 128 81.4 instead of 60.8, down 61 instead of 38.6
//    - sums exchanged by plain remote stores between two cluster barriers with release: o at m = 32
//      16.3 instead of 14.6; with half the memory a block, so that the next starts in time: 12.5
//    - loops over the sums unrolled, 100 KB of code, against rolled and with x evicted from L2 like
//      anything else: alone 4 to 9 faster in gate_up, 3 in down, 1 in the others, but not among a
//      layer's other kernels: without attention at m = 32, 64, 128 149.7, 134.9, 154.6 against
//      137.1, 135.6, 153.1 (cuBLASLt 131.1, 136.8, 146.0). Taken for cold instructions, and the
//      loss alone for misses of x: here loops are rolled and x is kept (evict_last); not timed yet
//    - sums that start from bias and y: the compiler then runs wgmma one by one
//    - more than 128 tokens, by three warpgroups and by more blocks along m: as in (7), and a step
//      of 256x128 2 % longer; three warpgroups with 224 columns: not enough registers
//    - clusters of 4 and 8: some H200 hold only 30 and 15 of them (the cut asks the device)
//    - weights laid out tile by tile, 28 KB in a row for each stage: gate_up at m = 128 61.9
//      instead of 62.8, o and down no faster, so the order of rows in memory is not what is lost
//    - the first 8 to 24 MB of the next weights fetched into L2 meanwhile (bulk prefetch), by
//      norms, rope, attention or the tail of this kernel: whole steps 16x1024 5.2 to 5.9 ms instead
//      of 5.26, 128x128 5.9 to 6.4 instead of 5.93; the lines are read from memory a second time
//    - the norm ahead taken in: consumers sum the squares of x from the stages that they multiply
//      and scale the sums by 1 / rms. Alone 1.4 to 4.7 more than without a norm, where the norm is
//      1.9 to 2.8: qkv at m = 64 17.8 against 18.0 with the norm apart and 16.0 without, gate_up at
//      m = 128 70.4, 70.5, 67.7; beside the products instead of ahead of them 18.1 and 71.2. Early
//      starts hide most of a norm: steps 64x128 5222 to 5278 instead of 5152 to 5196, 128x128 6074
//      to 6263 instead of 6001 to 6154
#include <utility>

#include "cuda/gemm/stream_gemm_sums.cuh"

namespace inferd::cuda {
namespace {

template <typename T, int kGroups, int kColumns>
__global__ void __launch_bounds__(StreamTile<kGroups, kColumns>::kThreads,
                                  StreamTile<kGroups, kColumns>::kBlocks)
    stream_gemm_kernel(const __grid_constant__ StreamGemmParams p,
                       const __grid_constant__ CUtensorMap x_map,
                       const __grid_constant__ CUtensorMap w_map) {
#ifdef INFERD_HOPPER
  using S = StreamTile<kGroups, kColumns>;
  extern __shared__ uint8_t raw[];
  // The launcher adds 1 KB for the alignment; every block of a cluster has the same offset.
  StreamBarriers& s =
      *reinterpret_cast<StreamBarriers*>(raw + (0u - shared_address(raw)) % kAtomBytes);
  const bool leader = threadIdx.x == kGroups * 128;
  if (leader) {
    prefetch_tensor_map(&w_map);
    prefetch_tensor_map(&x_map);
  }
  let_next_start();
  const StreamPlace at(p, 64 * S::kPanels);
  const bool alone = p.across * p.down * p.splits == 1;
  if (leader) {
    for (int i = 0; i < p.w_stages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], kGroups * (p.across + p.down - 1));
    }
    barrier_init(&s.mail, 1);
    if (p.splits > 1) {
      const int32_t quads = ((kColumns + 31) / 32 - at.kr + p.splits - 1) / p.splits;  // its own
      barrier_expect(&s.mail, quads * (p.splits - 1) * 4 * kGroups * 128 * 16);
    }
    barrier_init_fence();
    async_proxy_fence();
  }
  __syncthreads();
  if (p.down > 1) {  // weights go to other blocks too, whose barriers must be ready
    cluster_arrive();
    cluster_wait();
  }
  StreamProducer<kGroups, kColumns> producer(p, at, s, &x_map, &w_map);
  if (leader) producer.start();
  if (!alone && p.down == 1) {
    cluster_arrive();
    cluster_wait();
  }
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarp, 0);
  if (warp >= kGroups * 4) {
    if (leader) producer.run();
    __syncwarp();
    if (!alone) {
      cluster_arrive();
      cluster_wait();
    }
  } else {
    StreamConsumer<T, kGroups, kColumns>(p, at, s).run();
    // No block leaves while another may still write to it or report to its barriers.
    if (!alone && p.splits == 1) {
      cluster_arrive();
      cluster_wait();
    }
  }
#endif
}

// Stages of the queues within `bytes` of shared memory; false when too few fit to be useful.
template <int kGroups, int kColumns>
bool fill_stages(int bytes, int32_t& x_stages, int32_t& w_stages) {
  using S = StreamTile<kGroups, kColumns>;
  const int room = bytes - kAtomBytes - static_cast<int>(sizeof(StreamBarriers));
  for (x_stages = S::kPanels == 2 ? 3 : 4; x_stages >= 2; --x_stages) {
    w_stages = (room - x_stages * static_cast<int>(S::kStageX)) / static_cast<int>(S::kStageW);
    if (w_stages > kMostStages) w_stages = kMostStages;
    if (w_stages >= x_stages) return true;
  }
  return false;
}

template <typename T, int kGroups, int kColumns>
cudaError_t launch_tile(int32_t cluster, int32_t clusters, bool halved, StreamGemmParams p,
                        const CUtensorMap& x_map, const CUtensorMap& w_map, const Launch& launch) {
  using S = StreamTile<kGroups, kColumns>;
  const int bytes = halved ? kHalfBytes : kWholeBytes;
  if (halved && S::kBlocks == 1) return cudaErrorInvalidValue;
  if (!fill_stages<kGroups, kColumns>(bytes, p.x_stages, p.w_stages)) return cudaErrorInvalidValue;
  return launch_kernel(stream_gemm_kernel<T, kGroups, kColumns>,
                       {.grid = dim3(static_cast<unsigned>(cluster * clusters)),
                        .threads = S::kThreads,
                        .shared_bytes = static_cast<size_t>(bytes),
                        .cluster = cluster},
                       launch, p, x_map, w_map);
}

using Launcher = cudaError_t (*)(int32_t, int32_t, bool, StreamGemmParams, const CUtensorMap&,
                                 const CUtensorMap&, const Launch&);

constexpr int kWidths = (kWidestTile - kNarrowestTile) / kTileStep + 1;
// Those left out were never the fastest.
constexpr bool has_width(int columns) { return columns != 176 && columns != 192 && columns != 240; }

template <typename T, int kGroups, int kWidth>
constexpr Launcher launcher_of() {
  constexpr int kColumns = kNarrowestTile + kWidth * kTileStep;
  if constexpr (has_width(kColumns)) {
    return launch_tile<T, kGroups, kColumns>;
  } else {
    return nullptr;
  }
}
template <typename T, int kGroups, int... kWidth>
Launcher launcher_of(int width, std::integer_sequence<int, kWidth...>) {
  constexpr Launcher kTable[] = {launcher_of<T, kGroups, kWidth>()...};
  return kTable[width];
}
template <typename T>
Launcher find_launcher(int32_t groups, int32_t columns) {
  const int32_t width = (columns - kNarrowestTile) / kTileStep;
  if (columns < kNarrowestTile || columns % kTileStep != 0 || width >= kWidths) return nullptr;
  const std::make_integer_sequence<int, kWidths> all;
  switch (groups) {
    case 1:
      return launcher_of<T, 1>(width, all);
    case 2:
      return launcher_of<T, 2>(width, all);
    default:
      return nullptr;
  }
}

}  // namespace

int32_t stream_gemm_resident(int32_t size, bool halved) {
  constexpr int kGroups = 1, kColumns = kNarrowestTile;  // any: shared memory is what bounds all
  using S = StreamTile<kGroups, kColumns>;
  const auto kernel = stream_gemm_kernel<__nv_bfloat16, kGroups, kColumns>;
  const int bytes = halved ? kHalfBytes : kWholeBytes;
  cudaLaunchAttribute shape = {};
  shape.id = cudaLaunchAttributeClusterDimension;
  shape.val.clusterDim.x = static_cast<unsigned>(size);
  shape.val.clusterDim.y = shape.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(size));
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.attrs = &shape;
  config.numAttrs = 1;
  int clusters = 0;
  const bool known = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          bytes) == cudaSuccess &&
                     cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
  return known ? clusters : 0;
}

bool stream_gemm_has_tile(int32_t groups, int32_t columns, bool halved) {
  return find_launcher<__half>(groups, columns) != nullptr &&
         (!halved || columns <= widest_of_two(groups));
}

cudaError_t launch_stream_gemm(Half type, const StreamGemmCut& cut, int32_t clusters,
                               const StreamGemmParams& params, const CUtensorMap& x_map,
                               const CUtensorMap& w_map, const Launch& launch) {
  const Launcher launcher = type == Half::kBF16
                                ? find_launcher<__nv_bfloat16>(cut.groups, cut.columns)
                                : find_launcher<__half>(cut.groups, cut.columns);
  if (launcher == nullptr) return cudaErrorInvalidValue;
  return launcher(cut.across * cut.down * cut.splits, clusters, cut.halved, params, x_map, w_map,
                  launch);
}

}  // namespace inferd::cuda
