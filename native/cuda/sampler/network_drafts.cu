// 1. next_tokens: the token behind each place of a batch. draft_tokens: of each sequence that
// drafts
//    the last token, or the draft `ahead` places behind it, and its place. pick_drafting: the row
//    of a batch that a sequence goes on from. draft_best: the best column of a row of logits
//    becomes the draft `at` places behind a history.
// 2. Tables as in slots.h; logits [count, columns] f32, any stride; all else int32.
// 3. A thread a token or a sequence; draft_best: a block of 1024 threads a sequence.
// 4. draft_best: 32 words of shared memory; the others none.
// 5. Compares only. NaN counts as -inf, of equal ones the first is taken; with nothing above -inf
//    the column is 0.
// 6. Any architecture from sm_80.
// 7. All are bound by launch; draft_best reads 4 bytes a column with one multiprocessor a sequence.
//    A step of an 8B model with four drafts of an EAGLE-3 head takes 5.18 ms on an H200, one
//    without 3.91 (both not recorded as graphs but the latter).
// 8. No method.
// 9. Clusters, as in sampler_greedy.cu: worth it for a vocabulary of the target's size.
#include "cuda/device/launch.cuh"
#include "cuda/sampler/network_drafts.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 128, kBestThreads = 1024, kLanes = 32;

__global__ void next_tokens_kernel(const NextTokensParams p) {
  let_next_start();
  wait_for_previous();
  const int32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= p.count) return;
  const DeviceSlots& t = p.slots;
  int32_t id = -1;
  if (p.positions[i] >= 0) {
    const int64_t slot = p.rows[p.token_rows[i]].slot;
    const int32_t next = p.positions[i] + 1;
    if (next < t.lengths[slot]) id = t.tokens[slot * t.max_len + next];
  }
  p.ids[i] = id;
}

__global__ void draft_tokens_kernel(const DraftTokensParams p) {
  let_next_start();
  wait_for_previous();
  const int32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= p.count) return;
  const DeviceSlots& t = p.slots;
  const int32_t slot = p.rows[i].slot;
  const int32_t at = t.lengths[slot] - 1 + p.ahead;
  p.ids[i] = t.tokens[static_cast<int64_t>(slot) * t.max_len + at];
  p.positions[i] = at - p.lag;
  p.token_rows[i] = i;
  p.token_slots[i] = slot;
}

__global__ void pick_drafting_kernel(const PickDraftingParams p) {
  let_next_start();
  wait_for_previous();
  const int32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= p.count) return;
  const DraftRow row = p.rows[i];
  p.picks[i] = row.first + p.slots.lengths[row.slot] - 2 - p.positions[row.first];
}

// Larger for a larger value, and for the first of equal ones.
__device__ unsigned long long key_of(float value, int32_t column) {
  const uint32_t bits = __float_as_uint(value + 0.f);  // -0 and +0 are one value
  const uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(order) << 32 | static_cast<uint32_t>(~column);
}

__device__ unsigned long long best_of_warp(unsigned long long key) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    const unsigned long long other = __shfl_down_sync(0xffffffffu, key, step);
    if (other > key) key = other;
  }
  return key;
}

__global__ void __launch_bounds__(kBestThreads) draft_best_kernel(const DraftBestParams p) {
  __shared__ unsigned long long keys[kBestThreads / kLanes];
  let_next_start();
  wait_for_previous();
  const float* row = p.logits + static_cast<int64_t>(blockIdx.x) * p.row_stride;
  unsigned long long best = 0;
#pragma unroll 4
  for (int32_t i = threadIdx.x; i < p.columns; i += kBestThreads) {
    const unsigned long long key = key_of(fmaxf(__ldcg(row + i), -INFINITY), i);
    if (key > best) best = key;
  }
  best = best_of_warp(best);
  if (threadIdx.x % kLanes == 0) keys[threadIdx.x / kLanes] = best;
  __syncthreads();
  if (threadIdx.x >= kLanes) return;
  best = best_of_warp(keys[threadIdx.x]);
  const DeviceSlots& t = p.slots;
  const int32_t width = t.max_sample - 1;
  int32_t* ids = p.ids + static_cast<int64_t>(blockIdx.x) * width;
  for (int32_t i = p.at + 1 + threadIdx.x; p.at == 0 && i < width; i += kLanes) ids[i] = -1;
  if (threadIdx.x != 0) return;
  const auto column = static_cast<int32_t>(~static_cast<uint32_t>(best & 0xffffffffu));
  const int32_t id = p.target_ids == nullptr ? column : p.target_ids[column];
  const int32_t slot = p.rows[blockIdx.x].slot;
  t.tokens[static_cast<int64_t>(slot) * t.max_len + t.lengths[slot] + p.at] = id;
  t.num_drafts[slot] = p.at + 1;
  ids[p.at] = id;
}

template <typename Params>
cudaError_t for_each(void (*kernel)(Params), const Params& p, const Launch& launch) {
  if (p.count < 0) return cudaErrorInvalidValue;
  if (p.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((p.count + kThreads - 1) / kThreads);
  return launch_kernel(kernel, {.grid = dim3(blocks), .threads = kThreads}, launch, p);
}

}  // namespace

cudaError_t next_tokens(const NextTokensParams& p, const Launch& launch) {
  return for_each(next_tokens_kernel, p, launch);
}

cudaError_t draft_tokens(const DraftTokensParams& p, const Launch& launch) {
  return for_each(draft_tokens_kernel, p, launch);
}

cudaError_t pick_drafting(const PickDraftingParams& p, const Launch& launch) {
  return for_each(pick_drafting_kernel, p, launch);
}

cudaError_t draft_best(const DraftBestParams& p, const Launch& launch) {
  if (p.count < 0 || p.columns < 1) return cudaErrorInvalidValue;
  if (p.count == 0) return cudaSuccess;
  return launch_kernel(draft_best_kernel,
                       {.grid = dim3(static_cast<unsigned>(p.count)), .threads = kBestThreads},
                       launch, p);
}

}  // namespace inferd::cuda
