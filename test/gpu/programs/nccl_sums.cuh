// Sums by NCCL, to be timed beside those of inferd: as much of it as that takes, loaded at run
// time, and a communicator for each of some ranks. Include gpu_test.cuh first.
#pragma once
#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "rank_set.cuh"

namespace gpu_test {

class NcclSums {
 public:
  // Found where there is a library, and each rank has a GPU of its own. `memory(r)`: `bytes` of
  // rank r, which are added up once, as its first operation takes memory, which it must not while
  // it is recorded.
  template <typename Memory>
  NcclSums(Ranks& ranks, const Memory& memory, int64_t bytes) {
    for (const Rank& rank : ranks.of) {
      for (const Rank& other : ranks.of)
        if (&rank != &other && rank.device == other.device) return;
    }
    const char* named = std::getenv("INFERD_NCCL_LIBRARY");
    void* library = dlopen(named == nullptr ? "libnccl.so.2" : named, RTLD_NOW);
    if (library == nullptr) return;
    const auto get_id = reinterpret_cast<int (*)(Id*)>(dlsym(library, "ncclGetUniqueId"));
    const auto init =
        reinterpret_cast<int (*)(Comm*, int, Id, int)>(dlsym(library, "ncclCommInitRank"));
    all_reduce_ = reinterpret_cast<AllReduce>(dlsym(library, "ncclAllReduce"));
    Id id{};
    if (get_id == nullptr || init == nullptr || all_reduce_ == nullptr || get_id(&id) != 0) return;
    comms_.resize(ranks.of.size());
    ranks.each([&](int r) {
      expect(init(&comms_[r], ranks.size(), id, r) == 0, "ncclCommInitRank");
      for (const int64_t count : {int64_t{4096}, bytes / 2}) {
        add_up(r, memory(r), count, ranks.of[r].stream);
        CHECK_CUDA(cudaStreamSynchronize(ranks.of[r].stream));
      }
    });
  }

  bool found() const { return !comms_.empty(); }

  // x = its sum over the ranks, of `count` bf16 values.
  void add_up(int rank, void* x, int64_t count, cudaStream_t stream) const {
    all_reduce_(x, x, static_cast<size_t>(count), kBF16, kSum, comms_[rank], stream);
  }

 private:
  struct Id {
    char bytes[128];
  };
  using Comm = void*;
  using AllReduce = int (*)(const void*, void*, size_t, int, int, Comm, cudaStream_t);
  static constexpr int kBF16 = 9, kSum = 0;

  AllReduce all_reduce_ = nullptr;
  std::vector<Comm> comms_;
};

}  // namespace gpu_test
