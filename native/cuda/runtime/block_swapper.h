// Swaps of KV blocks beside the compute of a step, on a stream of their own.
//
//   compute   | step N-1 |o apply ... [wait u] rows of N ............ [wait d] end of N | step N+1
//   copies                '> urgent out  u  other out, in ............ d
//
// o, u and d are events. The copies of a step begin when the steps before it are done, since those
// may write what goes out and read what is overwritten; its rows wait for the urgent ones only; its
// end waits for all. So a step whose end was seen has nothing under way, and the next one may read
// what came in and write what went out.
//
// Layout of the host memory: one region [host blocks, arrays, block_bytes] for each run of arrays
// with blocks of one size. Thread: the engine's.
#pragma once
#include <cstdint>
#include <vector>

#include "core/plan/step_plan.h"
#include "core/swap_pool.h"
#include "cuda/runtime/memory.h"

namespace inferd::cuda {

class BlockSwapper {
 public:
  // Allocates what swaps of this pool need. Throws Error(kOutOfMemory).
  explicit BlockSwapper(const SwapPool& pool);
  // Waits for the copies.
  ~BlockSwapper();
  BlockSwapper(const BlockSwapper&) = delete;
  BlockSwapper& operator=(const BlockSwapper&) = delete;

  // As Backend::swap_out and swap_in; at most as many pairs as the host has blocks.
  void out(const BlockCopy* pairs, int32_t n, int32_t urgent, cudaStream_t compute);
  void in(const BlockCopy* pairs, int32_t n, cudaStream_t compute);
  // At the end of every step.
  cudaError_t join(cudaStream_t compute);

 private:
  struct Region {
    DeviceMemory bases;  // [num_bases] device pointers
    int32_t num_bases;
    int64_t block_bytes;
    void* host;
  };
  // The copies of this step come after what `compute` holds now.
  void follow(cudaStream_t compute);
  const BlockCopy* send(const BlockCopy* pairs, int32_t n);

  Stream stream_;
  Event ready_, urgent_, done_;
  std::vector<Region> regions_;
  DeviceMemory pairs_;  // [num_blocks]; used by one call after the other on stream_
  bool used_ = false;   // in the step at hand
};

}  // namespace inferd::cuda
