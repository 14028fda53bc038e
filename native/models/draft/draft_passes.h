// The passes of a drafter in a step: one over all tokens of the step, then one for each further
// draft. On the backend's stream.
#pragma once
#include <span>

#include "models/draft/drafter.h"

namespace inferd {

// The tokens of a step, once they are sampled and accepted. `ids` [tokens] device: room for those
// behind them, where the drafter has a lag.
struct FollowedStep {
  std::span<const KvLayer> kv;  // of the drafter
  const SlotTables& slots;
  const StepBatch& batch;
  Tensor states;  // of the target, for a drafter that reads the last ones
  int32_t* ids;
};
void follow_step(Backend& backend, Drafter& drafter, const Model& target, const FollowedStep& step);

// Of the sequences that are to draft behind such a step. Pointers are device memory unless named
// otherwise.
struct DraftWork {
  std::span<const KvLayer> kv;  // of the drafter
  const SlotTables& slots;
  std::span<const DraftRow> sequences;  // host, those of the most drafts first; at least one
  const DraftRow* rows;                 // the same
  const PlanRow* host_rows;             // host: one token each, from the device
  const PlanRow* plan_rows;             // the same
  const int32_t* offsets;               // 0, 1, ..
  // Of the step that was followed, and then of each pass.
  int32_t *ids, *positions, *token_rows;
  int32_t* picks;       // [sequences]
  int32_t* drafts;      // [sequences, max_sample - 1]
  int32_t max_context;  // of the step
  int32_t max_logit_rows;
};
void draft_ahead(Backend& backend, Drafter& drafter, const DraftWork& work);

}  // namespace inferd
