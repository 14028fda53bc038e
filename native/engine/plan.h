// Reads and checks step plans before anything happens (layout and meaning:
// actors/messages/step.ts).
//
// The checker keeps, per slot, what the device will hold once all accepted plans have run: the
// history length (counting tokens that samples still in flight will append), the number of blocks
// in its table, its prompt length. A plan that does not fit this picture is refused whole with
// Error(kBadPlan) and one sentence; nothing has changed then. Memory safety of the kernels rests on
// these checks: every slot, block, position and token id that reaches a device table is in range.
//
// A sample of several tokens may give fewer, and the next plan may come before that is known. So a
// length is a range, from `known` to `most`; `settle` narrows it. Rows of the host's making read
// tokens below `known`; a row that starts where the device's history ends has room up to `most`.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/plan/adapter_rows.h"
#include "core/plan/step_plan.h"

namespace inferd {

struct PlanLimits {
  int32_t max_slots;
  int32_t max_len;     // tokens of a sequence that may be computed; one more may be sampled
  int32_t max_blocks;  // blocks of a slot's table
  int32_t block_size;
  int32_t num_blocks;       // of the KV pool
  int32_t num_swap_blocks;  // of the host
  int32_t max_batch_tokens;
  int32_t vocab_size;
  int32_t max_sample = 1;  // tokens of one sample
  // Drafts are made by a network, which writes keys and values at the places behind the history.
  bool drafts_in_blocks = false;
  float forced_rate = -1;  // SlotTables::forced_rate
  int32_t adapter_places = 0;
};

// One prompt position whose logprob was asked for.
struct PromptTarget {
  int32_t slot;
  int32_t position;  // of `token` in the history
  int32_t token;
  int32_t batch_row;  // token row of the batch whose logits predict it
  int32_t top;        // entries wanted besides the token itself
};

// A sequence with a grammar (SamplingRow::grammar) that begins in a slot.
struct NewConstraint {
  int32_t slot;
  int32_t fork_of;                   // -1, or the slot whose output so far it shares
  int32_t grammar;                   // its number in GrammarStore
  std::span<const int32_t> outputs;  // tokens that it has generated; of no fork
};

// Raw logits asked for: one token row of the batch.
struct LogitRow {
  int32_t slot, position, batch_row;
};

// Hidden states that go to the sum of a slot: those of a whole row, or of its last token alone.
struct PoolSpan {
  int32_t slot;
  int32_t batch_row, count;  // token rows of the batch
  bool fresh;                // the sum begins with them
  int32_t over;              // > 0: the sum is complete, of so many states; their mean is wanted
};

// Sections of an accepted plan; the spans point into the checked words.
struct ParsedPlan {
  PlanHeader header{};
  std::span<const AdapterPlacement> adapters;
  std::vector<AdapterRun> adapter_runs;  // of the batch rows
  std::span<const BlockSet> block_sets;
  std::span<const BlockCopy> swap_outs;  // device to host
  std::span<const BlockCopy> copies;
  std::span<const BlockCopy> swap_ins;  // host to device
  std::span<const PlanRow> rows;
  std::span<const PlanSample> samples;
  std::vector<int32_t> row_offsets;  // [rows + 1] first batch row of each plan row
  // Each sample is so many rows of logits as its count: [samples + 1] the first of each, and of
  // each the batch row that it comes from.
  std::vector<int32_t> sample_offsets, sample_rows;
  std::vector<int64_t> sequences;  // [samples] whose they are, see PlanChecker::settle
  std::vector<PromptTarget> prompts;
  std::vector<LogitRow> logit_rows;
  std::vector<PoolSpan> pools;
  std::vector<int32_t> freed_constraints;  // slots whose sequences had a grammar
  std::vector<NewConstraint> new_constraints;
  std::vector<size_t> constrained;  // samples of sequences that have one
  std::vector<DraftRow> drafts;     // wanted, the most first
  std::vector<int32_t> draft_of;    // [samples] index in `drafts`, or -1
  bool drafted = false;             // a sample may give several tokens
  int32_t max_row_count = 0;
  int32_t max_context = 0;
  int32_t max_top = -1;  // the largest top_logprobs among the samples
  // Every row is one token that is sampled, row i by sample i: the step that a graph can hold.
  bool pure_decode = false;
  bool plain_greedy = true;  // no sample draws, edits its logits or wants log-probabilities
};

// The ranges of core/plan/sampling_row.h. Throws Error(kBadPlan).
void check_sampling(const SamplingRow& row);

class PlanChecker {
 public:
  // `knows`: whether an adapter of this number is loaded.
  explicit PlanChecker(const PlanLimits& limits,
                       std::function<bool(int32_t adapter)> knows = nullptr);

  // Fills `plan` from `words`, which must outlive it, and takes its effects into account. Throws
  // Error(kBadPlan).
  void accept(std::span<const int32_t> words, ParsedPlan& plan);
  // Once the step of `plan` has finished: its sample `index` gave `count` tokens, at least one.
  void settle(const ParsedPlan& plan, size_t index, int32_t count);

 private:
  struct Slot {
    bool live = false;
    int64_t sequence = 0;  // counts the sequences that slots were given to
    int32_t known = 0;     // tokens of the history, at least
    int32_t most = 0;      // and at most
    int32_t prompt_len = 0;
    int32_t adapter = kNoAdapter;
    int32_t num_blocks = 0;
    int32_t summed = 0;  // positions, from the first on, whose states are in its sum
    int32_t prompt_logprobs = -1;
    int32_t top_logprobs = -1;
    bool plain_greedy = true;
    bool constrained = false;
    bool in_row = false;  // of the plan being checked
    int32_t sampled = 0;  // tokens
    int32_t drafts = 0;   // that may lie behind the history once its last sample has run
  };
  struct NewPrompt {
    int32_t slot;
    int32_t fork_of;
    std::span<const int32_t> tokens;
  };
  class Cursor;

  Slot& live_slot(int32_t slot, const char* what);
  // Checks a section and takes its effects into draft_ and `plan`; of plan.header.num_NAME entries.
#define SECTION(type, name, label) void read_##name(Cursor& at, ParsedPlan& plan);
  INFERD_PLAN_SECTIONS(SECTION)
#undef SECTION
  void check_new_slot(const NewSlotFixed& n, std::span<const int32_t> tokens, bool lists);
  // Reads one list of a new slot; true when it has entries.
  bool read_list(Cursor& at, SlotListIndex index, int32_t count);
  void check_from_device(const PlanRow& row, const Slot& slot) const;
  // Adds what the flags of `row`, the last in plan.row_offsets, say of pooling.
  void read_pool(const PlanRow& row, Slot& slot, ParsedPlan& plan) const;
  void check_sample(const PlanSample& sample, const PlanRow& row, const Slot& slot) const;
  void commit(ParsedPlan& plan);

  PlanLimits limits_;
  std::function<bool(int32_t adapter)> knows_adapter_;
  std::vector<bool> placed_, draft_placed_;  // places that hold an adapter
  std::vector<Slot> slots_;
  std::vector<Slot> draft_;  // slots_ as the plan being checked would leave them
  int64_t num_sequences_ = 0;
  std::vector<NewPrompt> new_prompts_;
  // Prompt tokens, kept on the host only for slots that want prompt logprobs: the targets of those.
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<int32_t> draft_of_slot_;  // of the plan in hand: index in ParsedPlan::drafts
};

}  // namespace inferd
