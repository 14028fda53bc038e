// 1. Applies a step plan to the slot tables, and gathers ids, positions, rows and slots of a step's
//    tokens.
// 2. Plan words as in core/plan/step_plan.h: header | freed | new slots | block sets | ...; tables
//    as in slots.h, all int32 but the sampling records.
// 3. apply: block 0 sets block table entries, the others take a new slot each, in turn; when a new
//    slot forks another, block 1 takes them all in the order of the plan. gather: one thread a
//    token, which finds its row by bisection.
// 4. Shared memory: 8 KB of table addresses in block 0.
// 5. Integers, exact.
// 6. Any architecture from sm_80.
// 7. Bound by launch and by the latency of a few dependent reads: about 3 us.
// 8. Delta-encoded plans as in vLLM V1's SchedulerOutput.
// 9. A walk over the records on the device: 0.5 us of latency a record, so the host sends where
//    each begins.
#include <cstring>

#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/sampler/slots.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 1024, kBlocks = 33, kGatherThreads = 128;
constexpr int32_t kSlotWords = sizeof(NewSlotFixed) / 4;
constexpr int32_t kSamplingWord = kSlotWords - sizeof(SamplingRow) / 4;

__device__ void copy_words(int32_t* to, const int32_t* from, int32_t count) {
  for (int32_t i = threadIdx.x; i < count; i += kThreads) to[i] = from[i];
}

// All threads of a block.
__device__ void apply_new_slot(const DeviceSlots& t, const int32_t* words) {
  const NewSlotFixed& fixed = *reinterpret_cast<const NewSlotFixed*>(words);  // all int32 fields
  const int64_t slot = fixed.slot;
  int32_t length = fixed.num_tokens;
  const int32_t* history = words + kSlotWords;
  if (fixed.fork_of >= 0) {
    length = t.lengths[fixed.fork_of];
    history = t.tokens + static_cast<int64_t>(fixed.fork_of) * t.max_len;
  }
  if (fixed.fork_of != fixed.slot) copy_words(t.tokens + slot * t.max_len, history, length);
  const int32_t* entries = words + kSlotWords + fixed.num_tokens;
#pragma unroll
  for (int32_t kind = 0; kind < kSlotLists; ++kind) {
    const SlotList& list = t.lists[kind];
    const int32_t count = fixed.list_counts[kind] * list.entry_words;
    for (int32_t i = threadIdx.x; i < count; i += kThreads)
      list.column(slot, i % list.entry_words)[i / list.entry_words] = entries[i];
    entries += count;
  }
  copy_words(reinterpret_cast<int32_t*>(t.sampling + slot), words + kSamplingWord,
             sizeof(SamplingRow) / 4);
  __syncthreads();  // a slot that forks itself reads its length above
  if (threadIdx.x == 0) {
    t.lengths[slot] = length;
    t.prompt_lens[slot] = fixed.prompt_len;
    t.num_drafts[slot] = 0;
#pragma unroll
    for (int32_t kind = 0; kind < kSlotLists; ++kind)
      t.lists[kind].counts[slot] = fixed.list_counts[kind];
  }
}

// In pieces of kThreads sets; within a piece a set gives way to a later one of the same entry.
__device__ void apply_block_sets(const DeviceSlots& t, const BlockSet* sets, int32_t count) {
  __shared__ int64_t entries[kThreads];
  for (int32_t start = 0; start < count; start += kThreads) {
    const int32_t here = min(count - start, kThreads), i = threadIdx.x;
    BlockSet set = {};
    if (i < here) {
      set = sets[start + i];
      entries[i] = static_cast<int64_t>(set.slot) * t.max_blocks + set.index;
    }
    __syncthreads();
    bool last = i < here;
    for (int32_t j = i + 1; j < here; ++j) last = last && entries[j] != entries[i];
    if (last) t.blocks[entries[i]] = set.block;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    apply_slots_kernel(const DeviceSlots t, const int32_t* words, const int32_t* index) {
  let_next_start();
  wait_for_previous();
  const PlanHeader& header = *reinterpret_cast<const PlanHeader*>(words);
  if (blockIdx.x == 0) {
    apply_block_sets(t, reinterpret_cast<const BlockSet*>(words + index[1]), header.num_block_sets);
    return;
  }
  const bool ordered = index[0] != 0;
  if (ordered && blockIdx.x > 1) return;
  const int32_t step = ordered ? 1 : kBlocks - 1;
  for (int32_t i = blockIdx.x - 1; i < header.num_new_slots; i += step) {
    apply_new_slot(t, words + index[kPlanIndexFixed + i]);
    __syncthreads();  // and the next one may fork from this
  }
}

__global__ void gather_tokens_kernel(const DeviceSlots t, const GatherTokensParams p) {
  let_next_start();
  wait_for_previous();
  const int32_t i = blockIdx.x * kGatherThreads + threadIdx.x;
  if (i >= p.num_tokens) return;
  int32_t id = -1, position = -1, row = 0, slot = 0;
  if (i < p.row_offsets[p.num_rows]) {
    int32_t high = p.num_rows;  // row_offsets[row] <= i < row_offsets[high]
    while (high - row > 1) {
      const int32_t middle = (row + high) / 2;
      (p.row_offsets[middle] <= i ? row : high) = middle;
    }
    const PlanRow from = p.rows[row];
    slot = from.slot;
    const bool from_device = (from.flags & kRowFromDevice) != 0;
    const int32_t place = i - p.row_offsets[row];
    position = (from_device ? t.lengths[slot] - 1 : from.start) + place;
    if (!from_device || place <= t.num_drafts[slot])
      id = t.tokens[static_cast<int64_t>(slot) * t.max_len + position];
  }
  p.ids[i] = id;
  p.positions[i] = position;
  if (p.token_rows != nullptr) p.token_rows[i] = row;
  if (p.token_slots != nullptr) p.token_slots[i] = slot;
}

}  // namespace

void index_plan(const int32_t* plan_words, std::vector<int32_t>& index) {
  PlanHeader header;
  std::memcpy(&header, plan_words, sizeof(header));
  index.assign(static_cast<size_t>(kPlanIndexFixed + header.num_new_slots), 0);
  const PlanOffsets offsets(plan_words);
  auto at = static_cast<int32_t>(offsets.new_slots);
  for (int32_t i = 0; i < header.num_new_slots; ++i) {
    NewSlotFixed fixed;
    std::memcpy(&fixed, plan_words + at, sizeof(fixed));
    index[static_cast<size_t>(kPlanIndexFixed + i)] = at;
    if (fixed.fork_of >= 0) index[0] = 1;
    at += static_cast<int32_t>(new_slot_words(fixed));
  }
  index[1] = static_cast<int32_t>(offsets.block_sets);
}

cudaError_t apply_slots(const DeviceSlots& slots, const int32_t* plan_words, const int32_t* index,
                        const Launch& launch) {
  return launch_kernel(apply_slots_kernel, {.grid = dim3(kBlocks), .threads = kThreads}, launch,
                       slots, plan_words, index);
}

cudaError_t gather_tokens(const DeviceSlots& slots, const GatherTokensParams& params,
                          const Launch& launch) {
  if (params.num_tokens < 0 || params.num_rows < 0) return cudaErrorInvalidValue;
  if (params.num_tokens == 0) return cudaSuccess;
  const int blocks = (params.num_tokens + kGatherThreads - 1) / kGatherThreads;
  return launch_kernel(gather_tokens_kernel,
                       {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kGatherThreads},
                       launch, slots, params);
}

}  // namespace inferd::cuda
