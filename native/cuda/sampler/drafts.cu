// 1. accept: of each slot the sampled tokens go to its history as long as the one before equals the
//    draft that was computed there. ngram: for each slot the tokens behind the first place where
//    its last tokens stand before, the longest such run of max..min tokens.
// 2. Tables as in slots.h, samples and rows as in drafts.h, all int32.
// 3. accept: one thread a slot. ngram: one block of 256 threads a slot; a thread compares every
//    256th place with the end of the history, backwards.
// 4. 8 bytes of shared memory.
// 5. Integers, exact.
// 6. Any architecture from sm_80.
// 7. accept is bound by launch. ngram reads 4 bytes a token of history, since most places differ in
//    the first token that is compared: 8192 tokens are 32 reads a thread.
// 8. Speculation by sampling and comparing keeps the sampler's distribution whatever is drafted.
//    Drafts from the prompt: "prompt lookup decoding" (Saxena 2023).
// 9. A suffix automaton of the history: one look-up, but updates of several words for every token.
#include <climits>

#include "core/plan/forced_drafts.h"
#include "cuda/device/launch.cuh"
#include "cuda/sampler/drafts.h"

namespace inferd::cuda {
namespace {

constexpr int kAcceptThreads = 128, kNgramThreads = 256;

__global__ void accept_drafts_kernel(const AcceptDraftsParams p) {
  let_next_start();
  wait_for_previous();
  const int32_t first = blockIdx.x * kAcceptThreads + threadIdx.x;
  if (first >= p.count || p.samples[first].slot < 0 || p.samples[first].offset != 0) return;
  const DeviceSlots& t = p.slots;
  const int64_t slot = p.samples[first].slot;
  int32_t* history = t.tokens + slot * t.max_len;
  const int32_t drafts = t.num_drafts[slot];
  int32_t length = t.lengths[slot];
  const bool forced = t.forced_rate >= 0 && drafts > 0;
  const int32_t kept = forced ? forced_drafts(t.forced_rate, t.forced_steps[slot]++,
                                              static_cast<int32_t>(slot), drafts)
                              : 0;
  bool goes_on = true;
  for (int32_t i = first; i < p.count; ++i) {
    if (i > first && p.samples[i].offset == 0) break;
    int32_t token = p.tokens[i];
    if (token == kNoDraft) continue;
    if (!goes_on || length >= t.max_len) {
      p.tokens[i] = kDraftRefused;
      continue;
    }
    if (forced && i - first < kept) p.tokens[i] = token = history[length];
    goes_on = forced ? i - first < kept : i - first < drafts && history[length] == token;
    history[length++] = token;
  }
  t.lengths[slot] = length;
  t.num_drafts[slot] = 0;
}

__global__ void __launch_bounds__(kNgramThreads) draft_ngram_kernel(const DraftNgramParams p) {
  __shared__ unsigned long long best;
  let_next_start();
  wait_for_previous();
  const DeviceSlots& t = p.slots;
  const DraftRow row = p.rows[blockIdx.x];
  int32_t* history = t.tokens + static_cast<int64_t>(row.slot) * t.max_len;
  const int32_t length = t.lengths[row.slot];
  if (threadIdx.x == 0) best = 0;
  __syncthreads();
  // Of places as good as each other the first.
  unsigned long long mine = 0;
  for (int32_t end = 1 + threadIdx.x; end < length; end += kNgramThreads) {
    int32_t same = 0;
    while (same < p.max && same < end && history[end - 1 - same] == history[length - 1 - same])
      ++same;
    if (same < p.min) continue;
    const auto key = static_cast<unsigned long long>(same) << 32 |
                     static_cast<unsigned long long>(INT_MAX - end);
    if (key > mine) mine = key;
  }
  if (mine > 0) atomicMax(&best, mine);
  __syncthreads();
  const int32_t width = t.max_sample - 1;
  const int32_t from = INT_MAX - static_cast<int32_t>(best & 0xffffffffu);
  const int32_t count =
      best == 0 ? 0 : max(0, min(min(row.count, t.max_len - length), length - from));
  for (int32_t i = threadIdx.x; i < width; i += kNgramThreads) {
    const int32_t id = i < count ? history[from + i] : -1;
    p.ids[static_cast<int64_t>(blockIdx.x) * width + i] = id;
    if (i < count) history[length + i] = id;
  }
  if (threadIdx.x == 0) t.num_drafts[row.slot] = count;
}

}  // namespace

cudaError_t accept_drafts(const AcceptDraftsParams& p, const Launch& launch) {
  if (p.count < 0) return cudaErrorInvalidValue;
  if (p.count == 0) return cudaSuccess;
  const int blocks = (p.count + kAcceptThreads - 1) / kAcceptThreads;
  return launch_kernel(accept_drafts_kernel,
                       {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kAcceptThreads},
                       launch, p);
}

cudaError_t draft_ngram(const DraftNgramParams& p, const Launch& launch) {
  if (p.count < 0 || p.min < 1 || p.max < p.min) return cudaErrorInvalidValue;
  if (p.count == 0) return cudaSuccess;
  return launch_kernel(draft_ngram_kernel,
                       {.grid = dim3(static_cast<unsigned>(p.count)), .threads = kNgramThreads},
                       launch, p);
}

}  // namespace inferd::cuda
