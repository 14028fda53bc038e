// Sums and gathers over the GPUs of a group. Raw device pointers; see collectives.cu.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/device/launch.h"
#include "cuda/ranks/links.h"

namespace inferd::cuda {

enum class SumType { kF16, kBF16, kF32 };
constexpr int64_t value_bytes(SumType type) { return type == SumType::kF32 ? 4 : 2; }

// inout[i] = the sum of x[i] over the ranks, in their order, in f32, rounded once; with `residual`:
// inout[i] += scale * that sum, of the same inout on all ranks, and x stays as it is. Packed,
// 16-byte aligned, `count` * size of a value a multiple of 8.
struct SumArgs {
  SumType type;
  void* inout;
  const void* x;  // may be inout without a residual
  int64_t count;
  float scale;
  bool residual;
};
// In one shot: each rank sends all of x to all others; see two_shot.h for the other way.
cudaError_t all_reduce(const RankLinks& links, const SumArgs& args, int32_t sm_count,
                       const Launch& launch);

// The same of two ranks, with a residual, of what the other one has pushed to this one's place
// `parity`, once it says `flag` there. count * size of a value a multiple of 16.
cudaError_t add_pushed(const RankLinks& links, const SumArgs& args, uint32_t parity, uint32_t flag,
                       int32_t sm_count, const Launch& launch);

// The wait alone, of any number of ranks: what comes behind it on the stream sees what rank `from`
// pushed.
cudaError_t await_pushed(const RankLinks& links, int32_t from, uint32_t parity, uint32_t flag,
                         const Launch& launch);

// out [rows, ranks * row_bytes]: the `part` [rows, row_bytes] of each rank side by side, packed,
// 16-byte aligned. row_bytes a multiple of 8, of 16 above kPacketData.
cudaError_t all_gather(const RankLinks& links, void* out, const void* part, int64_t rows,
                       int64_t row_bytes, int32_t sm_count, const Launch& launch);

}  // namespace inferd::cuda
