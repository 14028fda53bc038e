// Drafts: which of them the sampled tokens confirm, and new ones from the history. Raw device
// pointers; see drafts.cu.
#pragma once
#include <cstdint>

#include "core/plan/step_plan.h"
#include "cuda/device/launch.h"
#include "cuda/sampler/slots.h"

namespace inferd::cuda {

struct AcceptDraftsParams {
  const TokenSample* samples;  // [count] those of a slot follow each other; negative slot: padding
  int32_t* tokens;  // [count] in: sampled; out: kDraftRefused behind the first that differs
  int32_t count;
  DeviceSlots slots;
};

struct DraftNgramParams {
  const DraftRow* rows;  // [count]
  int32_t count, min, max;
  int32_t* ids;  // [count, max_sample - 1]; -1 behind the drafts
  DeviceSlots slots;
};

// Backend::accept_drafts and Backend::draft_ngram.
cudaError_t accept_drafts(const AcceptDraftsParams& params, const Launch& launch);
cudaError_t draft_ngram(const DraftNgramParams& params, const Launch& launch);

}  // namespace inferd::cuda
