// The kernel of stream_gemm_sm90.cu and stream_gemm_codes_sm90.cu, and its launchers: see there.
#pragma once
#include <utility>

#include "cuda/gemm/stream_gemm_sums.cuh"

namespace inferd::cuda {
namespace {

// Blocks of a multiprocessor, as far as registers go: those of codes hold two sets of sums.
template <int kGroups, int kColumns, StreamOperands kOperands>
constexpr int kStreamBlocks = kOperands == StreamOperands::kHalves
                                  ? StreamTile<kGroups, kColumns>::kBlocks
                                  : (kColumns <= widest_codes_of_two(kGroups) ? 2 : 1);

template <typename T, int kGroups, int kColumns, StreamOperands kOperands>
__global__ void __launch_bounds__(StreamTile<kGroups, kColumns>::kThreads,
                                  kStreamBlocks<kGroups, kColumns, kOperands>)
    stream_gemm_kernel(const __grid_constant__ StreamGemmParams p,
                       const __grid_constant__ CUtensorMap x_map,
                       const __grid_constant__ CUtensorMap w_map) {
#ifdef INFERD_HOPPER
  using S = StreamTile<kGroups, kColumns>;
  using Consumer = StreamConsumer<T, kGroups, kColumns, kOperands>;
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
    if (p.splits > 1) barrier_expect(&s.mail, Consumer::mail_bytes(p, at));
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
    Consumer(p, at, s).run();
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

template <typename T, int kGroups, int kColumns, StreamOperands kOperands>
cudaError_t launch_tile(int32_t cluster, int32_t clusters, bool halved, StreamGemmParams p,
                        const CUtensorMap& x_map, const CUtensorMap& w_map, const Launch& launch) {
  using S = StreamTile<kGroups, kColumns>;
  const int bytes = halved ? kHalfBytes : kWholeBytes;
  if (halved && kStreamBlocks<kGroups, kColumns, kOperands> == 1) return cudaErrorInvalidValue;
  if (!fill_stages<kGroups, kColumns>(bytes, p.x_stages, p.w_stages)) return cudaErrorInvalidValue;
  return launch_kernel(stream_gemm_kernel<T, kGroups, kColumns, kOperands>,
                       {.grid = dim3(static_cast<unsigned>(cluster * clusters)),
                        .threads = S::kThreads,
                        .shared_bytes = static_cast<size_t>(bytes),
                        .cluster = cluster},
                       launch, p, x_map, w_map);
}

constexpr int kWidths = (kWidestTile - kNarrowestTile) / kTileStep + 1;
// Those left out were never the fastest; two sets of sums of the widest would not fit.
constexpr bool has_width(StreamOperands operands, int columns) {
  return operands == StreamOperands::kHalves ? columns != 176 && columns != 240
                                             : columns <= kWidestCodesTile;
}

template <typename T, int kGroups, StreamOperands kOperands, int kWidth>
constexpr StreamLauncher launcher_of() {
  constexpr int kColumns = kNarrowestTile + kWidth * kTileStep;
  if constexpr (has_width(kOperands, kColumns)) {
    return launch_tile<T, kGroups, kColumns, kOperands>;
  } else {
    return nullptr;
  }
}
template <typename T, int kGroups, StreamOperands kOperands, int... kWidth>
StreamLauncher launcher_of(int width, std::integer_sequence<int, kWidth...>) {
  constexpr StreamLauncher kTable[] = {launcher_of<T, kGroups, kOperands, kWidth>()...};
  return kTable[width];
}
template <typename T, StreamOperands kOperands>
StreamLauncher find_launcher(int32_t groups, int32_t columns) {
  const int32_t width = (columns - kNarrowestTile) / kTileStep;
  if (columns < kNarrowestTile || columns % kTileStep != 0 || width >= kWidths) return nullptr;
  const std::make_integer_sequence<int, kWidths> all;
  switch (groups) {
    case 1:
      return launcher_of<T, 1, kOperands>(width, all);
    case 2:
      return launcher_of<T, 2, kOperands>(width, all);
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace inferd::cuda
