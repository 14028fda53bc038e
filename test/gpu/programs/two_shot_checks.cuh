// Checks of sums in two shots over three, four and eight ranks, bit by bit against the sum that the
// host makes and against one shot:
//
//   launched   each rank by its own launch, on its stream, as in steps
//   at once    all ranks as blocks of one cooperative kernel on one GPU, which the driver only
//              starts when all of them fit: nothing can wait for what does not run, also under
//              tools that let no kernel run beside another
#pragma once
#include <cstring>
#include <memory>

#include "cuda/ranks/collectives.h"
#include "cuda/ranks/sum_timing.h"
#include "cuda/ranks/two_shot.cuh"
#include "cuda/ranks/two_shot.h"
#include "nccl_sums.cuh"
#include "rank_set.cuh"

namespace gpu_test {

using inferd::cuda::SumArgs;
using inferd::cuda::SumType;

// What ranks bring to a sum, and what becomes of it.
template <typename T>
struct SumCase {
  std::vector<std::vector<T>> x;
  std::vector<T> old, want;
  float scale;
  bool residual;

  SumCase(int ranks, int64_t count, bool adds, uint32_t seed)
      : old(noisy<T>(static_cast<size_t>(count), 2, seed + 77)),
        want(static_cast<size_t>(count)),
        scale(adds ? 0.5f : 1),
        residual(adds) {
    for (int r = 0; r < ranks; ++r)
      x.push_back(noisy<T>(static_cast<size_t>(count), 1, seed + static_cast<uint32_t>(r)));
    for (size_t i = 0; i < want.size(); ++i) {
      float sum = 0;
      for (const std::vector<T>& part : x) sum += to_float(part[i]);
      want[i] = rounded<T>(residual ? std::fma(scale, sum, to_float(old[i])) : sum);
    }
  }
};

// Its arrays on the devices of the ranks.
template <typename T>
class SumArrays {
 public:
  SumArrays(Ranks& ranks, const SumCase<T>& what) : ranks_(ranks), case_(what) {
    for (int r = 0; r < ranks.size(); ++r) {
      CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
      x_.push_back(std::make_unique<Device<T>>(what.x[r]));
      sums_.push_back(std::make_unique<Device<T>>(what.old));
    }
    reset();
  }
  void reset() {
    for (int r = 0; r < ranks_.size(); ++r) {
      CHECK_CUDA(cudaSetDevice(ranks_.of[r].device));
      x_[r]->upload(case_.x[r]);
      sums_[r]->upload(case_.old);
      CHECK_CUDA(cudaDeviceSynchronize());
    }
  }
  T* x(int r) const { return x_[r]->get(); }
  T* inout(int r) const { return (case_.residual ? sums_ : x_)[r]->get(); }
  // Whether all ranks have all bits.
  void expect_sums(const std::string& name) const {
    for (int r = 0; r < ranks_.size(); ++r) {
      CHECK_CUDA(cudaSetDevice(ranks_.of[r].device));
      const std::vector<T> got = (case_.residual ? sums_ : x_)[r]->download();
      expect(std::memcmp(got.data(), case_.want.data(), got.size() * sizeof(T)) == 0,
             name + " of " + std::to_string(got.size()) + " values, rank " + std::to_string(r) +
                 " of " + std::to_string(ranks_.size()) + (case_.residual ? ", added" : ""));
      if (!case_.residual) continue;
      const std::vector<T> kept = x_[r]->download();
      expect(std::memcmp(kept.data(), case_.x[r].data(), kept.size() * sizeof(T)) == 0,
             name + " changed x");
    }
  }

 private:
  Ranks& ranks_;
  const SumCase<T>& case_;
  std::vector<std::unique_ptr<Device<T>>> x_, sums_;
};

// In one shot and in two by turns, with the places of both parities.
template <typename T>
void check_launched(Ranks& ranks, SumType type, int64_t count, bool residual, uint32_t seed) {
  const SumCase<T> what(ranks.size(), count, residual, seed);
  SumArrays<T> arrays(ranks, what);
  for (const bool two_shot : {true, true, false, true}) {
    arrays.reset();
    ranks.each([&](int r) {
      const Rank& rank = ranks.of[r];
      const SumArgs args{.type = type,
                         .inout = arrays.inout(r),
                         .x = arrays.x(r),
                         .count = count,
                         .scale = what.scale,
                         .residual = residual};
      const auto sum = two_shot ? inferd::cuda::two_shot_all_reduce : inferd::cuda::all_reduce;
      CHECK_CUDA(sum(rank.links, args, ranks.blocks(), inferd::cuda::Launch(rank.stream)));
    });
    ranks.sync();
    arrays.expect_sums(two_shot ? "two shots" : "one shot");
  }
}

inline void check_two_shot(Ranks& ranks) {
  constexpr int64_t kBF16Bytes = 2;
  const int64_t packed = inferd::cuda::kPacketData * ranks.size();
  const int64_t piece =
      inferd::cuda::kShareTiles * inferd::cuda::kShareTileBytes * int64_t{ranks.size()};
  for (const int64_t bytes :
       {int64_t{8}, int64_t{64}, int64_t{200'016}, packed, packed + 8, packed + 16, 2 * packed}) {
    for (const bool residual : {false, true}) {
      check_launched<__nv_bfloat16>(ranks, SumType::kBF16, bytes / kBF16Bytes, residual, 5);
      check_launched<__half>(ranks, SumType::kF16, bytes / 2, residual, 6);
      check_launched<float>(ranks, SumType::kF32, bytes / 4, residual, 7);
    }
  }
  // In two pieces; of many ranks the host would take long to make them.
  if (ranks.size() == 3)
    check_launched<__nv_bfloat16>(ranks, SumType::kBF16, (piece + 200'016) / kBF16Bytes, true, 8);
  // Random sizes, up to 1 MB; in between the count of ops passes its end.
  uint32_t random = 99;
  for (int i = 0; i < 40; ++i) {
    if (i == 20) ranks.begin_behind(UINT32_MAX - 7);
    random = random * 1664525u + 1013904223u;
    const int64_t most = int64_t{8} << (random >> 8) % 17;
    const int64_t count = (most + (random >> 4) % most) / 4 * 4;
    check_launched<__nv_bfloat16>(ranks, SumType::kBF16, count, random >> 31 != 0, random);
  }
}

enum class InOne { kPackets, kTiles };

template <InOne kWay, typename Sum>
__global__ void __launch_bounds__(inferd::cuda::kShareThreads)
    all_ranks(const inferd::cuda::RankLinks* links, const Sum* sums, int32_t groups) {
  if constexpr (kWay == InOne::kPackets)
    inferd::cuda::two_shot_in_packets(links[blockIdx.y], sums[blockIdx.y], groups);
  else
    inferd::cuda::two_shot_in_tiles(links[blockIdx.y], sums[blockIdx.y], groups);
}

// All ranks are on one GPU. `groups` of 8 or 16 bytes.
template <typename T, InOne kWay, bool kResidual>
void check_at_once(Ranks& ranks, int32_t groups) {
  constexpr int kBlocks = 2, kTimes = 3;
  using Group = std::conditional_t<kWay == InOne::kPackets, uint2, uint4>;
  using Sum = inferd::cuda::Sum<T, Group, kResidual>;
  const int64_t count = int64_t{groups} * Sum::kValues;
  const SumCase<T> what(ranks.size(), count, kResidual, static_cast<uint32_t>(groups));
  SumArrays<T> arrays(ranks, what);
  std::vector<inferd::cuda::RankLinks> links;
  std::vector<Sum> sums;
  for (int r = 0; r < ranks.size(); ++r) {
    links.push_back(ranks.of[r].links);
    sums.push_back({arrays.x(r), arrays.inout(r), what.scale});
  }
  const Device<inferd::cuda::RankLinks> device_links(links);
  const Device<Sum> device_sums(sums);
  const inferd::cuda::RankLinks* links_at = device_links.get();
  const Sum* sums_at = device_sums.get();
  void* args[] = {&links_at, &sums_at, &groups};
  for (int time = 0; time < kTimes; ++time) {
    arrays.reset();
    CHECK_CUDA(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(all_ranks<kWay, Sum>),
                                           dim3(kBlocks, static_cast<unsigned>(ranks.size())),
                                           dim3(inferd::cuda::kShareThreads), args, 0,
                                           ranks.of[0].stream));
    ranks.sync();
    arrays.expect_sums(kWay == InOne::kPackets ? "packets at once" : "tiles at once");
  }
}

template <typename T>
void check_at_once(Ranks& ranks) {
  // From fewer groups than ranks to several turns of a block; tiles of 1024 groups.
  for (const int32_t groups : {1, 5, 1000, 3 * 1024 + 7, 20'011}) {
    check_at_once<T, InOne::kPackets, false>(ranks, groups);
    check_at_once<T, InOne::kPackets, true>(ranks, groups);
  }
  for (const int32_t groups : {1, 5, 1000, 3 * 1024 + 7, 60'011}) {
    check_at_once<T, InOne::kTiles, false>(ranks, groups);
    check_at_once<T, InOne::kTiles, true>(ranks, groups);
  }
}

// For any number of ranks, on one GPU.
inline void check_two_shot_at_once(int size) {
  Ranks ranks(size, 1);
  check_at_once<__nv_bfloat16>(ranks);
  ranks.begin_behind(UINT32_MAX - 4);
  check_at_once<__half>(ranks);
  check_at_once<float>(ranks);
}

// That both ways can be timed for all ranks by one thread, behind which sums are right as before.
inline void check_timing(Ranks& ranks) {
  std::vector<inferd::cuda::TimedRank> timed;
  for (const Rank& rank : ranks.of)
    timed.push_back({.device = rank.device, .sm_count = ranks.blocks(), .links = rank.links});
  const std::vector<inferd::cuda::SumTimes> times = inferd::cuda::time_sums(timed);
  for (const inferd::cuda::SumTimes& t : times) {
    std::printf("%d ranks, %lld bytes: %.1f us in one shot, %.1f in two\n", ranks.size(),
                static_cast<long long>(t.bytes), static_cast<double>(t.one_shot),
                static_cast<double>(t.two_shot));
    expect(t.one_shot > 0 && t.two_shot > 0, "a time of sums");
  }
  if (times.empty()) std::printf("%d ranks: timing sums took too long\n", ranks.size());
  check_launched<__nv_bfloat16>(ranks, SumType::kBF16, 10'000, true, 9);
}

// Microseconds of sums in one shot and in two, where each rank has a GPU.
inline void bench_two_shot() {
  int devices = 0;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  for (const int size : {3, 4, 8}) {
    if (size > devices) {
      std::printf("%d ranks in two shots: not timed, as there are fewer GPUs\n", size);
      continue;
    }
    Ranks ranks(size);
    int32_t multiprocessors = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    constexpr int64_t kMost = 64 << 20;
    std::vector<__nv_bfloat16*> x(ranks.of.size()), sums(ranks.of.size());
    ranks.each([&](int r) {
      CHECK_CUDA(cudaMalloc(&x[r], kMost));
      CHECK_CUDA(cudaMalloc(&sums[r], kMost));
      CHECK_CUDA(cudaMemset(x[r], 0, kMost));
      CHECK_CUDA(cudaMemset(sums[r], 0, kMost));
      CHECK_CUDA(cudaDeviceSynchronize());
    });
    const NcclSums nccl(
        ranks, [&](int r) { return x[r]; }, kMost);
    std::printf("%d ranks %10s %14s %14s   us, with the residual; %s\n", size, "bytes", "one shot",
                "two shots", nccl.found() ? "NCCL, without" : "no NCCL");
    for (int64_t bytes = 8 << 10; bytes <= kMost; bytes *= 2) {
      std::printf("%18lld", static_cast<long long>(bytes));
      for (const auto sum : {inferd::cuda::all_reduce, inferd::cuda::two_shot_all_reduce}) {
        std::printf(" %14.1f", time_of(ranks, bytes, [&](int r, cudaStream_t stream) {
                      const SumArgs args{.type = SumType::kBF16,
                                         .inout = sums[r],
                                         .x = x[r],
                                         .count = bytes / 2,
                                         .scale = 1,
                                         .residual = true};
                      CHECK_CUDA(sum(ranks.of[r].links, args, multiprocessors,
                                     inferd::cuda::Launch(stream, true)));
                    }));
      }
      if (nccl.found())
        std::printf(" %14.1f", time_of(ranks, bytes, [&](int r, cudaStream_t stream) {
                      nccl.add_up(r, x[r], bytes / 2, stream);
                    }));
      std::printf("\n");
    }
    ranks.each([&](int r) {
      CHECK_CUDA(cudaFree(x[r]));
      CHECK_CUDA(cudaFree(sums[r]));
    });
  }
}

}  // namespace gpu_test
