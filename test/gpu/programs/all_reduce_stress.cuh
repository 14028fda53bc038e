// A stress of sums over ranks: many operations of random sizes in replayed graphs, each checked bit
// by bit on the device that made it, with ranks that come late by turns. Of more ranks than two
// they go in one shot and in two, in random order.
#pragma once
#include <array>

#include "cuda/ranks/collectives.h"
#include "cuda/ranks/two_shot.h"
#include "rank_set.cuh"

namespace gpu_test {

__device__ inline uint32_t mixed(uint32_t a, uint32_t b) {
  uint32_t x = a * 2654435761u ^ b * 0x85ebca6bu;
  x ^= x >> 15;
  x *= 0xc2b2ae35u;
  return x ^ x >> 13;
}

// What rank `rank` brings to op `op`.
__device__ inline __nv_bfloat16 brought(uint32_t op, int rank, int64_t i) {
  return __float2bfloat16_rn(noise(static_cast<uint64_t>(i), mixed(op, 31 + rank)));
}

struct Tally {
  unsigned long long ops, wrong;
};

// Checks that `values` [checked] are the sums of the op before, and makes what the next one sums;
// `made` numbers them. One rank in eight comes late.
__global__ void check_and_make(__nv_bfloat16* values, int64_t checked, int64_t next, int rank,
                               int ranks, uint32_t* made, Tally* tally) {
  __shared__ bool late;
  const uint32_t op = *made;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < checked; i += step) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += __bfloat162float(brought(op, r, i));
    const __nv_bfloat16 want = __float2bfloat16_rn(sum), got = values[i];
    if (__bfloat16_as_ushort(want) != __bfloat16_as_ushort(got)) atomicAdd(&tally->wrong, 1ull);
  }
  for (int64_t i = first; i < next; i += step) values[i] = brought(op + 1, rank, i);
  if (threadIdx.x == 0) late = mixed(op, 101 + rank) % 8 == 0;
  __syncthreads();
  if (late && blockIdx.x == 0) {
    for (uint32_t i = 0; i < mixed(op, 7 + rank) % 16; ++i) __nanosleep(500);
  }
}
__global__ void count_one(uint32_t* made, Tally* tally) {
  ++*made;
  ++tally->ops;
}

// `made` is counted by the last block of the op before it is read again: a launch of its own.
inline void stress(Ranks& ranks, int64_t wanted) {
  constexpr int kGraphs = 8, kOps = 250;
  // Values; of more ranks than two enough for tiles of shares.
  const int64_t most_values = ranks.size() == 2 ? 512 << 10 : 2 << 20;
  const uint32_t large = ranks.size() == 2 ? 18 : 20;
  struct Side {
    __nv_bfloat16* values;
    uint32_t* made;
    Tally* tally;
    std::array<cudaGraphExec_t, kGraphs> graphs;
  };
  struct Planned {
    int64_t count;
    bool two_shot;
  };
  std::vector<Side> sides(ranks.of.size());
  uint32_t random = 12345;
  std::vector<std::vector<Planned>> plans(kGraphs);
  for (std::vector<Planned>& list : plans) {
    for (int i = 0; i < kOps; ++i) {
      random = random * 1664525u + 1013904223u;
      const int bits = 2 + static_cast<int>((random >> 8) % (random >> 28 == 0 ? large : 14));
      const int64_t most = int64_t{1} << bits;
      const int64_t count = std::min(most_values, (most + (random >> 4) % most) / 8 * 8 + 8);
      if (ranks.size() > 2) random = random * 1664525u + 1013904223u;
      list.push_back({.count = count, .two_shot = ranks.size() > 2 && random >> 30 != 0});
    }
  }
  ranks.each([&](int r) {
    Side& side = sides[r];
    const Rank& rank = ranks.of[r];
    CHECK_CUDA(cudaMalloc(&side.values, most_values * sizeof(__nv_bfloat16)));
    CHECK_CUDA(cudaMalloc(&side.made, sizeof(uint32_t)));
    CHECK_CUDA(cudaMalloc(&side.tally, sizeof(Tally)));
    CHECK_CUDA(cudaMemset(side.made, 0, sizeof(uint32_t)));
    CHECK_CUDA(cudaMemset(side.tally, 0, sizeof(Tally)));
    for (int g = 0; g < kGraphs; ++g) {
      cudaGraph_t graph;
      CHECK_CUDA(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
      int64_t before = 0;
      for (int i = 0; i <= kOps; ++i) {
        const int64_t next = i < kOps ? plans[g][i].count : 0;
        const auto blocks =
            static_cast<unsigned>(std::clamp<int64_t>(std::max(before, next) / 1024, 1, 64));
        check_and_make<<<blocks, 256, 0, rank.stream>>>(side.values, before, next, r, ranks.size(),
                                                        side.made, side.tally);
        if (i == kOps) break;
        count_one<<<1, 1, 0, rank.stream>>>(side.made, side.tally);
        const inferd::cuda::SumArgs args{.type = inferd::cuda::SumType::kBF16,
                                         .inout = side.values,
                                         .x = side.values,
                                         .count = next,
                                         .scale = 1,
                                         .residual = false};
        const auto sum =
            plans[g][i].two_shot ? inferd::cuda::two_shot_all_reduce : inferd::cuda::all_reduce;
        CHECK_CUDA(sum(rank.links, args, ranks.blocks(), inferd::cuda::Launch(rank.stream)));
        before = next;
      }
      CHECK_CUDA(cudaStreamEndCapture(rank.stream, &graph));
      CHECK_CUDA(cudaGraphInstantiate(&side.graphs[g], graph, 0));
      CHECK_CUDA(cudaGraphUpload(side.graphs[g], rank.stream));
      CHECK_CUDA(cudaGraphDestroy(graph));
    }
    CHECK_CUDA(cudaStreamSynchronize(rank.stream));
  });
  ranks.each([&](int r) {
    for (int64_t done = 0, replay = 0; done < wanted; done += kOps, ++replay) {
      CHECK_CUDA(cudaGraphLaunch(sides[r].graphs[static_cast<size_t>(replay % kGraphs)],
                                 ranks.of[r].stream));
      if (replay % 4 == 3) CHECK_CUDA(cudaStreamSynchronize(ranks.of[r].stream));
      if (*static_cast<volatile uint32_t*>(ranks.of[r].end) != 0) break;
    }
  });
  ranks.sync();
  for (int r = 0; r < ranks.size(); ++r) {
    Tally tally{};
    CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
    CHECK_CUDA(cudaMemcpy(&tally, sides[r].tally, sizeof tally, cudaMemcpyDefault));
    std::printf("stress, rank %d of %d: %llu operations, %llu wrong values\n", r, ranks.size(),
                tally.ops, tally.wrong);
    expect(tally.ops >= static_cast<unsigned long long>(wanted), "stress did not run to its end");
    expect(tally.wrong == 0, "stress");
    for (cudaGraphExec_t graph : sides[r].graphs) CHECK_CUDA(cudaGraphExecDestroy(graph));
    CHECK_CUDA(cudaFree(sides[r].values));
    CHECK_CUDA(cudaFree(sides[r].made));
    CHECK_CUDA(cudaFree(sides[r].tally));
  }
}

}  // namespace gpu_test
