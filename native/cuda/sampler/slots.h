// The device tables of all slots, and the kernels that apply a step plan to them. Raw device
// pointers; see slots.cu.
#pragma once
#include <cstdint>
#include <vector>

#include "core/plan/step_plan.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

// One row a slot; the fields of inferd::SlotTables.
struct DeviceSlots {
  int32_t* tokens;        // [max_slots, max_len] history: prompt, then output
  int32_t* lengths;       // [max_slots] tokens in the history
  int32_t* prompt_lens;   // [max_slots]
  int32_t* blocks;        // [max_slots, max_blocks] block table
  SamplingRow* sampling;  // [max_slots]
  SlotList lists[kSlotLists];
  uint32_t* masks;      // [max_slots, max_sample, mask_words] tokens that a grammar allows
  int32_t* num_drafts;  // [max_slots] tokens behind the history
  int32_t* forced_steps = nullptr;
  float forced_rate = -1;
  int32_t max_slots, max_len, max_blocks, mask_words, max_sample;
};

// Where the records of a plan begin, for the device, which cannot walk records of different lengths
// in parallel. Words: [0] 1 when the new slots must be applied in order (some fork another),
// [1] first word of the block sets, [2 + i] first word of new slot i.
constexpr int32_t kPlanIndexFixed = 2;

// Host. Fills `index` (resized to kPlanIndexFixed + new slots) for a validated plan.
void index_plan(const int32_t* plan_words, std::vector<int32_t>& index);

// Applies new slots and block sets. `plan_words` and `index` are device copies of the plan and of
// its index. Counts are read on the device, so that a captured launch follows the plan. A block set
// overrides those before it of the same entry. Freed slots keep their contents.
cudaError_t apply_slots(const DeviceSlots& slots, const int32_t* plan_words, const int32_t* index,
                        const Launch& launch);

struct GatherTokensParams {
  const PlanRow* rows;         // [num_rows]
  const int32_t* row_offsets;  // [num_rows + 1] first token of each row; rows may be empty
  int32_t* ids;                // [num_tokens] out
  int32_t* positions;          // [num_tokens] out
  int32_t* token_rows;         // [num_tokens] out, or null
  int32_t* token_slots;        // [num_tokens] out, or null
  int32_t num_rows, num_tokens;
};

// Fills the arrays of a step's tokens from the histories. Tokens past the last row (padding of a
// captured launch) get id -1, position -1, row 0 and slot 0; drafts that there are not get id -1.
cudaError_t gather_tokens(const DeviceSlots& slots, const GatherTokensParams& params,
                          const Launch& launch);

}  // namespace inferd::cuda
