// 1. inout = the sum of x over the ranks, in their order (or inout += scale * that sum), in two
//    shots: each rank adds up a share of the values, then all tell each other their shares.
// 2. x, inout: packed, 16-byte aligned; f16, bf16 or f32. With a residual inout is the same on all
//    ranks: who adds up a share also adds the residual to it.
//
//      rank 0   x_0 [share 0 | share 1 | share 2]     1: share r of x_0 goes to rank r
//      rank 1   x_1 [share 0 | share 1 | share 2]     2: rank r adds up share r of x_0, x_1, x_2
//      rank 2   x_2 [share 0 | share 1 | share 2]     3: the sum goes to all
//
// 3. In packets while a share fits in kPacketData bytes: a thread has a group of 8 bytes of every
//    share. Larger sums in tiles: a block has a tile of kShareTileBytes of every share, with a flag
//    for its parts and one for its sum, and takes tiles by turns. All blocks of a rank fit on the
//    device at once. Ranks cannot wait for each other in a circle: parts are sent before anything
//    that lies as far on is awaited, sums wait for parts alone, and all blocks go on in ascending
//    order. With as many blocks on all ranks, block k waits for block k of the others alone.
// 4. No shared memory; a thread holds what all ranks send of its group: 86 registers in packets, 64
//    in tiles.
// 5. f32 sums, rounded once, where they are made: the bits of the one-shot sum on all ranks.
// 6. Three to kMostRanks ranks whose devices reach each other's memory, from sm_80.
// 7. 2 (ranks - 1) / ranks bytes a byte over the links of a rank, twice that in packets; one-shot
//    sends ranks - 1. Two ways over the links instead of one. Not measured yet: no machine of more
//    than two GPUs was to be had.
// 8. A reduce-scatter and an all-gather (Rabenseifner 2004), over the mailboxes of links.h.
// 9. Multicast is not used. Nor are two shots of two ranks: as many bytes as one, and two waits.
#include "cuda/device/launch.cuh"
#include "cuda/ranks/two_shot.cuh"
#include "cuda/ranks/two_shot.h"

namespace inferd::cuda {
namespace {

template <typename Sum>
__global__ void __launch_bounds__(kShareThreads)
    packet_kernel(const __grid_constant__ RankLinks l, const Sum sum, int32_t groups) {
  let_next_start();
  wait_for_previous();
  two_shot_in_packets(l, sum, groups);
}

template <typename Sum>
__global__ void __launch_bounds__(kShareThreads)
    tile_kernel(const __grid_constant__ RankLinks l, const Sum sum, int32_t groups) {
  let_next_start();
  wait_for_previous();
  two_shot_in_tiles(l, sum, groups);
}

// `bytes` of a sum by `kernel`, `most` at a time, as groups of so many bytes; a block for each
// `block_bytes` of a share.
struct Pieces {
  int64_t bytes, most, group_bytes, block_bytes;
};

template <typename T, typename Work>
cudaError_t run(void (*kernel)(RankLinks, Work, int32_t), const RankLinks& l, const Work& all,
                const Pieces& p, int32_t sm_count, const Launch& launch) {
  for (int64_t at = 0; at < p.bytes; at += p.most) {
    const int64_t groups = min(p.most, p.bytes - at) / p.group_bytes;
    const int64_t share = (groups + l.size - 1) / l.size * p.group_bytes;
    const int64_t blocks = min(int64_t{sm_count}, (share + p.block_bytes - 1) / p.block_bytes);
    Work work = all;
    work.x += at / static_cast<int64_t>(sizeof(T));
    work.inout += at / static_cast<int64_t>(sizeof(T));
    const cudaError_t error = launch_kernel(
        kernel, {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kShareThreads}, launch, l,
        work, static_cast<int32_t>(groups));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename T, bool kResidual>
cudaError_t reduce(const RankLinks& l, const SumArgs& a, int32_t sm_count, const Launch& launch) {
  const int64_t bytes = a.count * static_cast<int64_t>(sizeof(T));
  const auto* x = static_cast<const T*>(a.x);
  auto* inout = static_cast<T*>(a.inout);
  if (bytes % 8 != 0 || l.size < 3) return cudaErrorInvalidValue;
  const int64_t most_packed = kPacketData * l.size;
  if (bytes > most_packed && bytes % 16 == 0) {
    using Tiles = Sum<T, uint4, kResidual>;
    return run<T>(tile_kernel<Tiles>, l, Tiles{x, inout, a.scale},
                  {.bytes = bytes,
                   .most = kShareTiles * kShareTileBytes * l.size,
                   .group_bytes = 16,
                   .block_bytes = kShareTileBytes},
                  sm_count, launch);
  }
  using Packets = Sum<T, uint2, kResidual>;
  return run<T>(
      packet_kernel<Packets>, l, Packets{x, inout, a.scale},
      {.bytes = bytes, .most = most_packed, .group_bytes = 8, .block_bytes = 8 * kShareThreads},
      sm_count, launch);
}

template <typename T>
cudaError_t reduce(const RankLinks& l, const SumArgs& a, int32_t sm_count, const Launch& launch) {
  return a.residual ? reduce<T, true>(l, a, sm_count, launch)
                    : reduce<T, false>(l, a, sm_count, launch);
}

}  // namespace

cudaError_t two_shot_all_reduce(const RankLinks& links, const SumArgs& args, int32_t sm_count,
                                const Launch& launch) {
  switch (args.type) {
    case SumType::kF16:
      return reduce<__half>(links, args, sm_count, launch);
    case SumType::kBF16:
      return reduce<__nv_bfloat16>(links, args, sm_count, launch);
    case SumType::kF32:
      return reduce<float>(links, args, sm_count, launch);
  }
  return cudaErrorInvalidValue;
}

}  // namespace inferd::cuda
