// Sums over two GPUs of rows that come in pieces, beside the products that make the next piece: a
// copy engine carries a piece to the other rank, and no multiprocessor waits for it.
//
//   stream       product 0 | product 1      | add 0 | product 2 | add 1 | ..
//   copy engine              push 0 .......           push 1 ......
//
// Both ranks push pieces in the same order, and add each, or have read it, before they push the
// next. So two places for pieces suffice: a rank pushes n + 2 behind its add n + 1, so after the
// other one pushed n + 1, which it did behind its add n.
//
// Thread: that of the rank. Not for recorded graphs: the host counts the pieces.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/ranks/collectives.h"
#include "cuda/runtime/memory.h"

namespace inferd::cuda {

// Pieces are of so many rows or a multiple, which are whole tiles of the products.
constexpr int64_t kPieceRows = 256;

class SumPipe {
 public:
  // On the current device.
  SumPipe();

  // Sends `bytes` at `x`, kPushBytes at most, which `stream` makes; they stay until they are added.
  void push(const RankLinks& links, const void* x, int64_t bytes, cudaStream_t stream);
  // Enqueues the sum of the piece that was pushed: args.x is what this rank pushed.
  void add(const RankLinks& links, const SumArgs& args, int32_t sm_count, cudaStream_t stream);
  // In place of add(): enqueues the wait for the piece of the other rank, which lies where this
  // says until the next push.
  const void* await(const RankLinks& links, cudaStream_t stream);

 private:
  // Two flags of one place, one after the other, differ, as their number is odd.
  static constexpr uint32_t kFlags = 255;
  uint32_t flag() const { return 1 + pieces_ % kFlags; }

  Stream copies_;
  Event made_, sent_;
  DeviceMemory flags_;  // kFlags + 1 words, of which each holds its index
  uint32_t pieces_ = 0;
};

}  // namespace inferd::cuda
