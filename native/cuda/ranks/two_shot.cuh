// What a block does in a two-shot sum (two_shot.cu), for any kernel whose blocks along x are those
// of one rank: that of the launcher, or one that has several ranks on one device, for tests.
#pragma once
#include <cstdint>

#include "cuda/device/common.cuh"
#include "cuda/ranks/group_sum.cuh"
#include "cuda/ranks/mailbox.cuh"
#include "cuda/ranks/two_shot.h"

namespace inferd::cuda {

constexpr int kShareThreads = 512;
constexpr int64_t kShareTileBytes = 16 << 10;
// Tiles of a share. A place for bulk and its flags has two halves: parts of sums, then sums.
constexpr int64_t kShareTiles = kBulkTiles / 2;
static_assert(kShareTiles * kShareTileBytes <= kBulkBytes / 2);

// Where rank `sender` leaves its sums in the mailbox of rank `of`.
__device__ inline std::byte* sum_packets(const RankLinks& l, int of, int sender, uint32_t parity) {
  return l.boxes[of] + common_bytes(l.size) + (parity * l.size + sender) * kPacketBytes;
}
__device__ inline std::byte* sum_bulk(const RankLinks& l, int of, int sender, uint32_t parity) {
  return bulk(l, of, sender, parity) + kBulkBytes / 2;
}
__device__ inline uint32_t* sum_tiles(const RankLinks& l, int of, int sender, uint32_t parity) {
  return tiles(l, of, sender, parity) + kShareTiles;
}

// The shares of `groups` groups, one for each rank: groups [r * width, (r + 1) * width) are that of
// rank r; the last ones may be shorter, or empty.
struct Shares {
  int groups, width;
  __device__ Shares(int count, int ranks) : groups(count), width((count + ranks - 1) / ranks) {}
  // Group i of the share of rank r, counted from the begin of the sum.
  __device__ int at(int r, int i) const { return r * width + i; }
  __device__ bool has(int r, int i) const { return i < width && at(r, i) < groups; }
};

// The rank that is `distance` behind this one. Ranks send to each other in this order, so that not
// all of them send to the same one at once.
__device__ inline int rank_behind(const RankLinks& l, int distance) {
  const int r = l.rank + distance;
  return r < l.size ? r : r - l.size;
}

// got[r] = what rank r leaves at place(r), for each rank in the set `ranks`, a bit each. All that
// have not come are looked at in one go: a look takes its time on the way to the memory, and seven
// one after the other would take seven times as long.
template <typename Place>
__device__ void await_packets(uint2 (&got)[kMostRanks], uint32_t ranks, uint32_t flag,
                              Patience& patience, const Place& place) {
  while (ranks != 0) {
    uint4 seen[kMostRanks];
#pragma unroll
    for (int r = 0; r < kMostRanks; ++r) {
      if ((ranks >> r & 1) != 0) seen[r] = look_at_packet(place(r));
    }
#pragma unroll
    for (int r = 0; r < kMostRanks; ++r) {
      if ((ranks >> r & 1) == 0 || !has_come(seen[r], flag)) continue;
      got[r] = {seen[r].x, seen[r].z};
      ranks &= ~(1u << r);
    }
    if (ranks != 0 && patience.over()) return;
  }
}

// The sum of a group over all ranks, in their order: own_part of this rank, theirs[r] of the
// others.
template <typename Sum, typename Group>
__device__ Group add_up(const Sum& sum, int rank, int ranks, int64_t at, const Group& own_part,
                        const Group (&theirs)[kMostRanks]) {
  typename Sum::Part part;
#pragma unroll
  for (int r = 0; r < kMostRanks; ++r) {
    Group group = theirs[r];
    if (r == rank) group = own_part;
    if (r < ranks) sum.take(part, at, r, group);
  }
  return sum.result(part, sum.old(at));
}

// In packets: groups of 8 bytes, shares of kPacketData bytes at most. A thread has the same groups
// of every share, so whoever overwrites a value is who has sent it before.
template <typename Sum>
__device__ void two_shot_in_packets(const RankLinks& l, const Sum& sum, int groups) {
  const uint32_t flag = begin_op(l), parity = flag % 2;
  const Shares shares(groups, l.size);
  const int first = blockIdx.x * kShareThreads + threadIdx.x, step = gridDim.x * kShareThreads;
  for (int i = first; i < shares.width; i += step) {
    uint2 part[kMostRanks];
#pragma unroll
    for (int d = 1; d < kMostRanks; ++d) {
      const int to = rank_behind(l, d);
      if (d < l.size && shares.has(to, i)) part[d] = sum.own(shares.at(to, i));
    }
#pragma unroll
    for (int d = 1; d < kMostRanks; ++d) {
      const int to = rank_behind(l, d);
      if (d < l.size && shares.has(to, i))
        send_packet(packets(l, to, l.rank, parity) + int64_t{i} * 16, part[d], flag);
    }
  }
  Patience patience(l);
  const uint32_t others = ((1u << l.size) - 1) & ~(1u << l.rank);
  for (int i = first; shares.has(l.rank, i); i += step) {
    const int at = shares.at(l.rank, i);
    uint2 parts[kMostRanks] = {};
    await_packets(parts, others, flag, patience,
                  [&](int r) { return packets(l, l.rank, r, parity) + int64_t{i} * 16; });
    const uint2 made = add_up(sum, l.rank, l.size, at, sum.own(at), parts);
    for (int d = 1; d < l.size; ++d)
      send_packet(sum_packets(l, rank_behind(l, d), l.rank, parity) + int64_t{i} * 16, made, flag);
    sum.put(at, made);
  }
  for (int i = first; i < shares.width; i += step) {
    uint32_t makers = 0;
#pragma unroll
    for (int r = 0; r < kMostRanks; ++r) {
      if (r < l.size && shares.has(r, i)) makers |= 1u << r;
    }
    makers &= others;
    uint2 made[kMostRanks] = {};
    await_packets(made, makers, flag, patience,
                  [&](int r) { return sum_packets(l, l.rank, r, parity) + int64_t{i} * 16; });
#pragma unroll
    for (int r = 0; r < kMostRanks; ++r) {
      if ((makers >> r & 1) != 0) sum.put(shares.at(r, i), made[r]);
    }
  }
  end_op(l, flag);
}

// In tiles: groups of 16 bytes, shares of kShareTiles tiles at most. A block has the same tiles of
// every share, and a thread the same groups of a tile. While a block waits for parts of a tile,
// those of its next one are on their way, and so with sums:
//
//   send parts of tile 0 | 1 | 2     | 3     | ..
//   make sums of              0 | 1     | 2
//   take sums of                      0 |     1
template <typename Sum>
__device__ void two_shot_in_tiles(const RankLinks& l, const Sum& sum, int groups) {
  constexpr int kTile = kShareTileBytes / sizeof(uint4);
  const uint32_t flag = begin_op(l), parity = flag % 2;
  const Shares shares(groups, l.size);
  const int count = (shares.width + kTile - 1) / kTile;
  const int peer = threadIdx.x;  // whose flags this thread sends and awaits
  const bool has_peer = peer < l.size && peer != l.rank;
  Patience patience(l);
  const auto each_group = [&](int tile, const auto& body) {
    const int end = min(shares.width, (tile + 1) * kTile);
    for (int i = tile * kTile + threadIdx.x; i < end; i += kShareThreads) body(i);
  };
  const auto send_parts = [&](int tile) {
    each_group(tile, [&](int i) {
      uint4 part[kMostRanks];
#pragma unroll
      for (int d = 1; d < kMostRanks; ++d) {
        const int to = rank_behind(l, d);
        if (d < l.size && shares.has(to, i)) part[d] = sum.own(shares.at(to, i));
      }
#pragma unroll
      for (int d = 1; d < kMostRanks; ++d) {
        const int to = rank_behind(l, d);
        if (d < l.size && shares.has(to, i))
          reinterpret_cast<uint4*>(bulk(l, to, l.rank, parity))[i] = part[d];
      }
    });
    __threadfence_system();
    __syncthreads();
    if (has_peer && shares.has(peer, tile * kTile))
      send_flag(tiles(l, peer, l.rank, parity) + tile, flag);
  };
  const auto make_sums = [&](int tile) {
    if (!shares.has(l.rank, tile * kTile)) return;
    if (has_peer) await_flag(tiles(l, l.rank, peer, parity) + tile, flag, patience);
    __syncthreads();
    each_group(tile, [&](int i) {
      if (!shares.has(l.rank, i)) return;
      const int at = shares.at(l.rank, i);
      uint4 parts[kMostRanks] = {};
#pragma unroll
      for (int r = 0; r < kMostRanks; ++r) {
        if (r < l.size && r != l.rank)
          parts[r] = __ldcg(reinterpret_cast<const uint4*>(bulk(l, l.rank, r, parity)) + i);
      }
      const uint4 made = add_up(sum, l.rank, l.size, at, sum.own(at), parts);
      for (int d = 1; d < l.size; ++d)
        reinterpret_cast<uint4*>(sum_bulk(l, rank_behind(l, d), l.rank, parity))[i] = made;
      sum.put(at, made);
    });
    __threadfence_system();
    __syncthreads();
    if (has_peer) send_flag(sum_tiles(l, peer, l.rank, parity) + tile, flag);
  };
  const auto take_sums = [&](int tile) {
    if (has_peer && shares.has(peer, tile * kTile))
      await_flag(sum_tiles(l, l.rank, peer, parity) + tile, flag, patience);
    __syncthreads();
    each_group(tile, [&](int i) {
      uint4 made[kMostRanks];
#pragma unroll
      for (int r = 0; r < kMostRanks; ++r) {
        if (r < l.size && r != l.rank && shares.has(r, i))
          made[r] = __ldcg(reinterpret_cast<const uint4*>(sum_bulk(l, l.rank, r, parity)) + i);
      }
#pragma unroll
      for (int r = 0; r < kMostRanks; ++r) {
        if (r < l.size && r != l.rank && shares.has(r, i)) sum.put(shares.at(r, i), made[r]);
      }
    });
  };
  const int step = gridDim.x;
  for (int tile = blockIdx.x; tile < count + 2 * step; tile += step) {
    if (tile < count) send_parts(tile);
    if (tile >= step && tile - step < count) make_sums(tile - step);
    if (tile >= 2 * step) take_sums(tile - 2 * step);
  }
  end_op(l, flag);
}

}  // namespace inferd::cuda
