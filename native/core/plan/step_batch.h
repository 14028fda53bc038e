// What the ops of one step read and write on the device: the tables of all slots, the rows of the
// step, and what becomes of its samples.
#pragma once
#include <cstdint>

#include "core/plan/adapter_rows.h"
#include "core/plan/sampling_row.h"
#include "core/plan/slot_lists.h"
#include "core/plan/step_plan.h"

namespace inferd {

// Device tables of all slots; one row a slot. Pointers are device memory, owned by the engine.
struct SlotTables {
  int32_t* tokens;        // [max_slots, max_len] history: prompt then output
  int32_t* lengths;       // [max_slots] tokens in the history
  int32_t* prompt_lens;   // [max_slots]
  int32_t* blocks;        // [max_slots, max_blocks] block table
  SamplingRow* sampling;  // [max_slots]
  SlotList lists[kSlotLists];
  // [max_slots, max_sample, mask_words] of a slot with SamplingRow::grammar: bit i % 32 of word
  // i / 32 is 1 when token i may be sampled, behind 0, 1, .. drafts.
  uint32_t* masks;
  int32_t* num_drafts;     // [max_slots] drafts, which lie in `tokens` behind the history
  int32_t* forced_steps;   // [max_slots] samples with drafts so far, counted where forced_rate says
  float forced_rate = -1;  // >= 0: drafts are accepted as forced_drafts() says, right or not
  int32_t max_slots, max_len, max_blocks, mask_words;
  int32_t max_sample = 1;  // tokens of one sample
};

// The rows of one step. A graph may have more rows than the step: those have no tokens, tokens
// behind the last row have id and position -1, and samples slot -1. `host_*` are host copies that
// the plan already knew; the others are device arrays of the step arena. Of a row with
// kRowFromDevice, `start` is the largest that it may be: ops that need the position of a token take
// `positions`. With `bounded` the host knows no rows, only how many rows and tokens there are at
// most: what a recording of any such step enqueues.
struct StepBatch {
  int32_t num_rows, num_tokens, num_samples;
  const PlanRow* host_rows;         // [num_rows]
  const TokenSample* host_samples;  // [num_samples]
  const PlanRow* rows;              // [num_rows] device
  const TokenSample* samples;       // [num_samples] device
  const int32_t* row_offsets;       // [num_rows + 1] first token of each row
  int32_t* ids;                     // [num_tokens] gathered from the slot tables
  int32_t* positions;               // [num_tokens]
  int32_t* token_rows;              // [num_tokens] row of each token
  int32_t max_row_count;            // longest row
  int32_t max_context;              // largest start + count, or a bound of it
  bool plain_greedy;                // no sample draws, edits its logits or wants log-probabilities
  bool drafted = false;             // samples wait for accept_drafts, see there
  bool bounded = false;             // host_rows is null; rows from the device are of one token
  const AdapterRows* adapters = nullptr;  // of its tokens; null: none uses an adapter
};

// The lengths of a suffix that is looked for: see Backend::draft_ngram.
struct NgramRange {
  int32_t min, max;
};

// Rows [first, first + count) of a matrix that are added to row `to` of others, or with `fresh` are
// all of it.
struct RowSum {
  int32_t to, first, count, fresh;
};
static_assert(sizeof(RowSum) == 4 * 4);

struct SampleOutputs {  // device memory, [num_samples] and [num_samples, 20]
  int32_t* tokens;      // or kDraftRefused, kNoDraft of core/plan/step_plan.h
  float* logprobs;      // NaN when not asked for
  int32_t* ranks;
  int32_t* top_ids;
  float* top_logprobs;
  int32_t* top_counts;
};

}  // namespace inferd
