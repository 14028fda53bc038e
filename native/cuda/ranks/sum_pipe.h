// Exchanges of rows over the GPUs of a group, beside the products that make the next ones: copy
// engines carry what a rank has for each of the others, and no multiprocessor waits for it. Of two
// ranks, whose exchanges are pieces of a sum:
//
//   stream       product 0 | product 1      | add 0 | product 2 | add 1 | ..
//   copy engine              push 0 .......           push 1 ......
//
// All ranks make the same exchanges in the same order: each pushes once to every other one, then
// awaits each of them, and has read what came before it pushes again. So two places for each sender
// suffice: a rank pushes in exchange n + 2 behind its last wait of n + 1, so after all others
// pushed in n + 1, which they did when they had read n.
//
// Thread: that of the rank. Not for recorded graphs: the host counts the exchanges.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/ranks/collectives.h"
#include "cuda/runtime/memory.h"

namespace inferd::cuda {

// Rows are cut into pieces and shares of so many or a multiple, whole tiles of the products.
constexpr int64_t kPieceRows = 256;

class SumPipe {
 public:
  // For a rank of so many, on the current device.
  explicit SumPipe(int32_t ranks);

  // Sends rank `to` `bytes` at `x`, push_bytes() at most, which `stream` makes; they stay until
  // what it sends has been awaited or added.
  void push(const RankLinks& links, int32_t to, const void* x, int64_t bytes, cudaStream_t stream);
  // Enqueues the wait for what rank `from` pushes, which lies where this says until this rank has
  // awaited all of the next exchange.
  const void* await(const RankLinks& links, int32_t from, cudaStream_t stream);
  // Of two ranks, in place of await(): enqueues the sum of what both have pushed: args.x is what
  // this one did.
  void add(const RankLinks& links, const SumArgs& args, int32_t sm_count, cudaStream_t stream);

 private:
  // One copy engine carries 264 GB/s of the 450 that an H200 has. More streams than there are
  // queues of the device, 8 if nothing else is set, would have copies wait behind kernels that wait
  // for a copy of another rank.
  static constexpr size_t kCopyStreams = 2;
  // To one of the others.
  struct Way {
    cudaStream_t copies;
    Event sent;
  };
  // Two flags of one place, one after the other, differ, as their number is odd.
  static constexpr uint32_t kFlags = 255;
  uint32_t flag() const { return 1 + exchanges_ % kFlags; }
  uint32_t parity() const { return exchanges_ % 2; }
  const Way& way_to(const RankLinks& links, int32_t rank) const;
  void count_awaited();

  std::array<Stream, kCopyStreams> copies_;
  std::vector<Way> ways_;  // by how far the other rank is behind this one
  Event made_;
  DeviceMemory flags_;  // kFlags + 1 words, of which each holds its index
  uint32_t exchanges_ = 0;
  size_t awaited_ = 0;  // of this exchange
};

}  // namespace inferd::cuda
