// Ranks of a group for test programs: rank r is on GPU r modulo their number, so that on a machine
// of one GPU all are on it, which is slower and tests the same. Include gpu_test.cuh first.
#pragma once
#include <algorithm>
#include <thread>

#include "cuda/ranks/links.h"
#include "gpu_test.cuh"

namespace gpu_test {

constexpr uint64_t kRankLimitNs = 10'000'000'000;

struct Rank {
  int device = 0;
  cudaStream_t stream = nullptr;
  std::byte* box = nullptr;
  uint32_t* end = nullptr;
  inferd::cuda::RankLinks links{};
};

struct Ranks {
  std::vector<Rank> of;

  // `devices`: at most so many GPUs.
  explicit Ranks(int ranks, int devices = inferd::cuda::kMostRanks)
      : of(static_cast<size_t>(ranks)) {
    int found = 0;
    CHECK_CUDA(cudaGetDeviceCount(&found));
    devices = std::min(devices, found);
    for (int r = 0; r < ranks; ++r) {
      Rank& rank = of[r];
      rank.device = r % devices;
      CHECK_CUDA(cudaSetDevice(rank.device));
      for (int other = 0; other < std::min(ranks, devices); ++other) {
        if (other == rank.device) continue;
        const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
        if (status == cudaErrorPeerAccessAlreadyEnabled)
          cudaGetLastError();
        else
          CHECK_CUDA(status);
      }
      CHECK_CUDA(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
      CHECK_CUDA(cudaMalloc(&rank.box, box_bytes()));
      CHECK_CUDA(cudaMalloc(&rank.links.count, sizeof(inferd::cuda::OpCount)));
      CHECK_CUDA(cudaMallocHost(&rank.end, sizeof(uint32_t)));
      *rank.end = 0;
    }
    for (int r = 0; r < ranks; ++r) {
      inferd::cuda::RankLinks& links = of[r].links;
      links.rank = r;
      links.size = ranks;
      for (int other = 0; other < ranks; ++other) links.boxes[other] = of[other].box;
      links.end = of[r].end;
      links.limit_ns = kRankLimitNs;
    }
    begin_behind(0);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    for (const Rank& rank : of) {
      cudaSetDevice(rank.device);
      cudaStreamDestroy(rank.stream);
      cudaFree(rank.box);
      cudaFree(rank.links.count);
      cudaFreeHost(rank.end);
    }
  }

  int size() const { return static_cast<int>(of.size()); }
  size_t box_bytes() const {
    return static_cast<size_t>(inferd::cuda::mailbox_bytes(static_cast<int>(of.size())));
  }
  // Of a rank, so that those of all fit on one GPU: blocks of two-shot sums have a multiprocessor
  // each, two of one-shot sums share one.
  int32_t blocks() const { return size() == 2 ? 96 : 96 / size(); }

  // Empty mailboxes, as if so many ops were over.
  void begin_behind(uint32_t ops) {
    const inferd::cuda::OpCount count{ops, 0};
    for (const Rank& rank : of) {
      CHECK_CUDA(cudaSetDevice(rank.device));
      CHECK_CUDA(cudaMemset(rank.box, 0, box_bytes()));
      CHECK_CUDA(cudaMemcpy(rank.links.count, &count, sizeof count, cudaMemcpyDefault));
      CHECK_CUDA(cudaDeviceSynchronize());
    }
  }

  // On a thread for each rank, whose device is current.
  void each(const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) {
      threads.emplace_back([&, r] {
        CHECK_CUDA(cudaSetDevice(of[r].device));
        work(r);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void sync() {
    for (Rank& rank : of) {
      CHECK_CUDA(cudaSetDevice(rank.device));
      CHECK_CUDA(cudaStreamSynchronize(rank.stream));
      expect(*rank.end == 0, "a rank waited for too long");
      if (*rank.end != 0) std::exit(1);
    }
  }
};

using Op = std::function<void(int rank, cudaStream_t)>;

// Microseconds of one of several in a graph, the longer one of the ranks.
inline double time_of(Ranks& ranks, int64_t bytes, const Op& op) {
  std::vector<double> us(ranks.of.size());
  const int count = bytes <= 1 << 20 ? 200 : 20;
  ranks.each([&](int r) {
    us[r] = time_in_graph(ranks.of[r].stream, count, 9, [&](int) { op(r, ranks.of[r].stream); });
  });
  ranks.sync();
  return *std::max_element(us.begin(), us.end());
}

}  // namespace gpu_test
