// 1. One-shot collectives: every rank pushes its vector to all others, then puts together what
// came:
//    a sum in the order of ranks (the same bits on all), with or without a residual, or a gather.
// 2. x, inout, part, out: packed, 16-byte aligned; f16, bf16 or f32.
// 3. Up to kPacketData bytes: a thread a group of 8 bytes, all sent before any is awaited. More: in
//    pieces of kBulkBytes, blocks take tiles of kTileBytes by turns and send one ahead of the one
//    that they await. All blocks fit on the device at once.
// 4. No shared memory but a flag; 40 registers, 70 where copies are added (pushed_kernel).
// 5. f32 sums, rounded once.
// 6. kMostRanks ranks whose devices reach each other's memory. Flags count ops in 32 bits, without
//    0: an op would have to find packets of the one exactly 2^32 ops before it to be misled.
// 7. Packets: 2 (ranks - 1) bytes a byte over the link, bound by its latency; bulk: ranks - 1.
//    Large sums of more ranks than two are made in two shots: two_shot.cu.
// 8. Flags in the packets: see mailbox.cuh.
// 9. Multicast is not used.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/ranks/collectives.h"
#include "cuda/ranks/group_sum.cuh"
#include "cuda/ranks/mailbox.cuh"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 512;

// As Sum (group_sum.cuh), of what is only put side by side.
template <typename Group>
struct Gather {
  const Group* part_rows;
  Group* out;
  int64_t width;  // groups of a row of one rank
  int32_t ranks;

  struct Part {};
  __device__ Group own(int64_t at) const { return part_rows[at]; }
  __device__ void take(Part&, int64_t at, int rank, const Group& group) const {
    out[(at / width * ranks + rank) * width + at % width] = group;
  }
  __device__ void store(const Part&, int64_t) const {}
};

template <typename Work>
__global__ void __launch_bounds__(kThreads)
    packet_kernel(const __grid_constant__ RankLinks l, const Work work, int32_t groups) {
  let_next_start();
  wait_for_previous();
  const uint32_t flag = begin_op(l), parity = flag % 2;
  const int first = blockIdx.x * kThreads + threadIdx.x, step = gridDim.x * kThreads;
  for (int i = first; i < groups; i += step) {
    const uint2 mine = work.own(i);
    for (int r = 0; r < l.size; ++r) {
      if (r != l.rank) send_packet(packets(l, r, l.rank, parity) + int64_t{i} * 16, mine, flag);
    }
  }
  Patience patience(l);
  for (int i = first; i < groups; i += step) {
    const uint2 mine = work.own(i);
    typename Work::Part part;
    for (int r = 0; r < l.size; ++r) {
      const uint2 group =
          r == l.rank
              ? mine
              : await_packet(packets(l, l.rank, r, parity) + int64_t{i} * 16, flag, patience);
      work.take(part, i, r, group);
    }
    work.store(part, i);
  }
  end_op(l, flag);
}

template <typename Work>
__global__ void __launch_bounds__(kThreads)
    bulk_kernel(const __grid_constant__ RankLinks l, const Work work, int64_t start,
                int32_t groups) {
  constexpr int kTile = kTileBytes / sizeof(uint4);
  let_next_start();
  wait_for_previous();
  const uint32_t flag = begin_op(l), parity = flag % 2;
  const int count = (groups + kTile - 1) / kTile;
  Patience patience(l);
  const auto send = [&](int tile) {
    const int end = min(groups, (tile + 1) * kTile);
    for (int i = tile * kTile + threadIdx.x; i < end; i += kThreads) {
      const uint4 mine = work.own(start + i);
      for (int r = 0; r < l.size; ++r) {
        if (r != l.rank) reinterpret_cast<uint4*>(bulk(l, r, l.rank, parity))[i] = mine;
      }
    }
    __threadfence_system();
    __syncthreads();
    const int r = threadIdx.x;
    if (r < l.size && r != l.rank) send_flag(tiles(l, r, l.rank, parity) + tile, flag);
  };
  const auto receive = [&](int tile) {
    const int from = threadIdx.x;
    if (from < l.size && from != l.rank)
      await_flag(tiles(l, l.rank, from, parity) + tile, flag, patience);
    __syncthreads();
    const int end = min(groups, (tile + 1) * kTile);
    for (int i = tile * kTile + threadIdx.x; i < end; i += kThreads) {
      typename Work::Part part;
      for (int r = 0; r < l.size; ++r) {
        const uint4 group =
            r == l.rank ? work.own(start + i)
                        : __ldcg(reinterpret_cast<const uint4*>(bulk(l, l.rank, r, parity)) + i);
        work.take(part, start + i, r, group);
      }
      work.store(part, start + i);
    }
  };
  int last = -1;
  for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
    send(tile);
    if (last >= 0) receive(last);
    last = tile;
  }
  if (last >= 0) receive(last);
  end_op(l, flag);
}

// At most one block a multiprocessor, which has enough on its way: blocks that do not fit hold up
// what other streams of the device begin behind them, and where ranks share a GPU that is the copy
// they wait for.
template <typename Sum>
__global__ void __launch_bounds__(kThreads)
    pushed_kernel(const __grid_constant__ RankLinks l, const Sum sum, const uint4* pushed,
                  const uint32_t* place, uint32_t flag, int64_t groups) {
  constexpr int kAtOnce = 4;
  let_next_start();
  wait_for_previous();
  if (threadIdx.x == 0) {
    Patience patience(l);
    await_flag(place, flag, patience);
  }
  __syncthreads();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x; first < groups;
       first += kAtOnce * step) {
    uint4 mine[kAtOnce], theirs[kAtOnce], old[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t at = min(first + i * step, groups - 1);  // nothing is done with a second load
      mine[i] = sum.own(at);
      theirs[i] = __ldcg(pushed + at);
      old[i] = sum.old(at);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t at = first + i * step;
      typename Sum::Part part;
      if (l.rank == 0) sum.take(part, at, 0, mine[i]);
      sum.take(part, at, 1 - l.rank, theirs[i]);
      if (l.rank == 1) sum.take(part, at, 1, mine[i]);
      if (at < groups) sum.store(part, at, old[i]);
    }
  }
}

__global__ void await_kernel(const __grid_constant__ RankLinks l, const uint32_t* place,
                             uint32_t flag) {
  wait_for_previous();
  Patience patience(l);
  await_flag(place, flag, patience);
}

template <typename Work>
cudaError_t run_packets(const RankLinks& l, const Work& work, int64_t bytes, int32_t sm_count,
                        const Launch& launch) {
  const auto groups = static_cast<int32_t>(bytes / 8);
  const int blocks = max(1, min(sm_count, (groups + kThreads - 1) / kThreads));
  return launch_kernel(packet_kernel<Work>,
                       {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kThreads}, launch,
                       l, work, groups);
}

template <typename Work>
cudaError_t run_bulk(const RankLinks& l, const Work& work, int64_t bytes, int32_t sm_count,
                     const Launch& launch) {
  for (int64_t at = 0; at < bytes; at += kBulkBytes) {
    const int64_t piece = min(kBulkBytes, bytes - at);
    const auto count = static_cast<int>((piece + kTileBytes - 1) / kTileBytes);
    const cudaError_t error = launch_kernel(
        bulk_kernel<Work>,
        {.grid = dim3(static_cast<unsigned>(min(sm_count, count))), .threads = kThreads}, launch, l,
        work, at / 16, static_cast<int32_t>(piece / 16));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename T, bool kResidual>
cudaError_t reduce(const RankLinks& l, const SumArgs& a, int32_t sm_count, const Launch& launch) {
  const int64_t bytes = a.count * static_cast<int64_t>(sizeof(T));
  const auto* x = static_cast<const T*>(a.x);
  auto* inout = static_cast<T*>(a.inout);
  if (bytes % 8 != 0) return cudaErrorInvalidValue;
  if (bytes > kPacketData && bytes % 16 == 0)
    return run_bulk(l, Sum<T, uint4, kResidual>{x, inout, a.scale}, bytes, sm_count, launch);
  for (int64_t at = 0; at < bytes; at += kPacketData) {
    const int64_t skipped = at / static_cast<int64_t>(sizeof(T));
    const cudaError_t error =
        run_packets(l, Sum<T, uint2, kResidual>{x + skipped, inout + skipped, a.scale},
                    min(kPacketData, bytes - at), sm_count, launch);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename T>
cudaError_t add_pushed_rows(const RankLinks& l, const SumArgs& a, uint32_t parity, uint32_t flag,
                            int32_t sm_count, const Launch& launch) {
  using Rows = Sum<T, uint4, true>;
  const int64_t bytes = a.count * static_cast<int64_t>(sizeof(T));
  if (!a.residual || l.size != 2 || bytes % 16 != 0 || bytes > push_bytes(2))
    return cudaErrorInvalidValue;
  const int32_t from = 1 - l.rank;
  const int64_t wanted = (bytes / 16 + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(min(int64_t{sm_count}, max(wanted, 1L)));
  const Rows rows{static_cast<const T*>(a.x), static_cast<T*>(a.inout), a.scale};
  return launch_kernel(pushed_kernel<Rows>, {.grid = dim3(blocks), .threads = kThreads}, launch, l,
                       rows, reinterpret_cast<const uint4*>(pushed_rows(l, l.rank, from, parity)),
                       pushed_flag(l, l.rank, from, parity), flag, bytes / 16);
}

template <typename T>
cudaError_t reduce(const RankLinks& l, const SumArgs& a, int32_t sm_count, const Launch& launch) {
  return a.residual ? reduce<T, true>(l, a, sm_count, launch)
                    : reduce<T, false>(l, a, sm_count, launch);
}

}  // namespace

cudaError_t all_reduce(const RankLinks& links, const SumArgs& args, int32_t sm_count,
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

cudaError_t add_pushed(const RankLinks& links, const SumArgs& args, uint32_t parity, uint32_t flag,
                       int32_t sm_count, const Launch& launch) {
  switch (args.type) {
    case SumType::kF16:
      return add_pushed_rows<__half>(links, args, parity, flag, sm_count, launch);
    case SumType::kBF16:
      return add_pushed_rows<__nv_bfloat16>(links, args, parity, flag, sm_count, launch);
    case SumType::kF32:
      return add_pushed_rows<float>(links, args, parity, flag, sm_count, launch);
  }
  return cudaErrorInvalidValue;
}

cudaError_t await_pushed(const RankLinks& links, int32_t from, uint32_t parity, uint32_t flag,
                         const Launch& launch) {
  return launch_kernel(await_kernel, {.grid = dim3(1), .threads = 1}, launch, links,
                       pushed_flag(links, links.rank, from, parity), flag);
}

cudaError_t all_gather(const RankLinks& links, void* out, const void* part, int64_t rows,
                       int64_t row_bytes, int32_t sm_count, const Launch& launch) {
  const int64_t bytes = rows * row_bytes;
  if (row_bytes % 8 != 0 || (bytes > kPacketData && row_bytes % 16 != 0))
    return cudaErrorInvalidValue;
  if (bytes == 0) return cudaSuccess;
  if (bytes <= kPacketData) {
    const Gather<uint2> work{static_cast<const uint2*>(part), static_cast<uint2*>(out),
                             row_bytes / 8, links.size};
    return run_packets(links, work, bytes, sm_count, launch);
  }
  const Gather<uint4> work{static_cast<const uint4*>(part), static_cast<uint4*>(out),
                           row_bytes / 16, links.size};
  return run_bulk(links, work, bytes, sm_count, launch);
}

}  // namespace inferd::cuda
