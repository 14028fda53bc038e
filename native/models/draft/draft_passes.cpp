// See draft_passes.h.
#include "models/draft/draft_passes.h"

#include <algorithm>

namespace inferd {

void follow_step(Backend& backend, Drafter& drafter, const Model& target,
                 const FollowedStep& step) {
  StepBatch batch = step.batch;
  batch.adapters = nullptr;
  if (drafter.lag() > 0) {
    backend.gather_next(step.slots, step.batch, step.ids);
    batch.ids = step.ids;
  }
  const bool taps = drafter.reads() == TargetStates::kTaps;
  drafter.follow({.kv = step.kv, .slots = step.slots, .batch = batch, .picks = nullptr},
                 taps ? target.taps(batch.num_tokens) : step.states);
}

void draft_ahead(Backend& backend, Drafter& drafter, const DraftWork& w) {
  const int32_t lag = drafter.lag(), most = w.sequences.front().count;
  auto rows = static_cast<int32_t>(w.sequences.size());
  for (int32_t at = 0; at < most; ++at) {
    while (w.sequences[static_cast<size_t>(rows) - 1].count <= at) --rows;
    if (at < lag) {
      backend.pick_drafting(w.slots, w.rows, rows, w.positions, w.picks);
      drafter.pick(w.picks, rows);
    } else {
      const StepBatch batch{.num_rows = rows,
                            .num_tokens = rows,
                            .num_samples = 0,
                            .host_rows = w.host_rows,
                            .host_samples = nullptr,
                            .rows = w.plan_rows,
                            .samples = nullptr,
                            .row_offsets = w.offsets,
                            .ids = w.ids,
                            .positions = w.positions,
                            .token_rows = w.token_rows,
                            .max_row_count = 1,
                            .max_context = w.max_context + most,
                            .plain_greedy = true};
      backend.gather_drafts(w.slots, batch, at, lag);
      drafter.advance({.kv = w.kv, .slots = w.slots, .batch = batch, .picks = nullptr});
    }
    for (int32_t first = 0; first < rows; first += w.max_logit_rows) {
      const int32_t count = std::min(rows - first, w.max_logit_rows);
      backend.draft_best(drafter.logits(first, count), w.slots, w.rows + first, count, at,
                         drafter.target_ids(), w.drafts + first * (w.slots.max_sample - 1));
    }
  }
}

}  // namespace inferd
