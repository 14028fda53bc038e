// What networks that draft need of the histories: the tokens of their passes, and where their
// drafts go. Raw device pointers; see network_drafts.cu.
#pragma once
#include <cstdint>

#include "core/plan/step_plan.h"
#include "cuda/device/launch.h"
#include "cuda/sampler/slots.h"

namespace inferd::cuda {

struct NextTokensParams {
  const PlanRow* rows;        // of the batch
  const int32_t* positions;   // [count]; -1: padding
  const int32_t* token_rows;  // [count]
  int32_t* ids;               // [count] out
  int32_t count;
  DeviceSlots slots;
};

struct DraftTokensParams {
  const PlanRow* rows;  // [count] one token each
  int32_t ahead, lag, count;
  int32_t *ids, *positions, *token_rows, *token_slots;  // [count] out
  DeviceSlots slots;
};

struct PickDraftingParams {
  const DraftRow* rows;      // [count]
  const int32_t* positions;  // of the batch
  int32_t* picks;            // [count] out
  int32_t count;
  DeviceSlots slots;
};

struct DraftBestParams {
  const float* logits;
  int64_t row_stride;
  int32_t columns;
  const DraftRow* rows;  // [count]
  int32_t count, at;
  const int32_t* target_ids;  // [columns], or null
  int32_t* ids;               // [count, max_sample - 1] out
  DeviceSlots slots;
};

// Those of Backend: gather_next, gather_drafts, pick_drafting, draft_best.
cudaError_t next_tokens(const NextTokensParams& params, const Launch& launch);
cudaError_t draft_tokens(const DraftTokensParams& params, const Launch& launch);
cudaError_t pick_drafting(const PickDraftingParams& params, const Launch& launch);
cudaError_t draft_best(const DraftBestParams& params, const Launch& launch);

}  // namespace inferd::cuda
