// One step: what the plan asks, on its way through the device, and what comes back.
//
//   submit   engine's thread    words -> PlanChecker -> StagedStep (host copy, one of two)
//   run      backend's stream   slots, block moves, gather tokens, forward, prompt logprobs, raw
//                               logits, pooled states, masks of constrained sequences, sample
//   wait     engine's thread    StagedStep -> result body
//
// A StagedStep belongs to the stream between submit and wait; two of them alternate, so at most two
// steps are in flight.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/memory/device_buffer.h"
#include "engine/adapters/adapters.h"
#include "engine/constraints.h"
#include "engine/kv_cache.h"
#include "engine/options.h"
#include "engine/plan.h"
#include "engine/slots.h"
#include "models/draft/draft_passes.h"
#include "models/model.h"

namespace inferd {

// SampleOutputs with room for `rows` entries, carved from `arena`. Small fields first, so that one
// copy brings all that a step without top entries needs.
struct OutputBuffer {
  SampleOutputs view{};
  int64_t small_bytes = 0, bytes = 0;

  static OutputBuffer carve(Arena& arena, int64_t rows);
};

// Tokens that one step can sample.
constexpr int64_t max_sampled(const PlanLimits& limits) {
  return int64_t{limits.max_slots} * limits.max_sample;
}

// Drafts that one step can make.
constexpr int64_t max_drafted(const PlanLimits& limits) {
  return int64_t{limits.max_slots} * (limits.max_sample - 1);
}

// What the host tells a step, in one piece of memory: one copy takes it to the device.
struct StepInputs {
  PlanRow* rows;         // [max_slots]
  TokenSample* samples;  // [max_sampled]
  int32_t* row_offsets;  // [max_slots + 1]
  DraftRow* drafts;      // [max_slots] to be made
  // The rows of a pass that drafts by a network, one token each: [max_slots], [max_slots + 1].
  PlanRow* draft_rows;
  int32_t* draft_offsets;
  // [max_sampled + 3 max_batch_tokens] batch rows whose states are wanted: of samples, of prompts,
  // pooled ones, then of raw logits
  int32_t* picks;
  int32_t* targets;  // [max_batch_tokens] token ids to score
  RowSum* sums;      // [max_slots] what is pooled
  // Copied apart, when rows use adapters: places of the batch rows [max_batch_tokens], then of the
  // picks [max_batch_tokens].
  int32_t* places;

  static StepInputs carve(Arena& arena, const PlanLimits& limits);
};

struct StagedStep {
  // Of a finished step: how many tokens a sample gave.
  int32_t tokens_given(size_t sample) const;
  // The same: the drafts that the tokens of a sample were compared with.
  int32_t drafts_computed(size_t sample) const;
  // Of a finished step: puts kNoToken where a constrained sequence could take none.
  void mark_stuck();

  HostBuffer words;  // the plan, as long as the stream may read it
  ParsedPlan plan;
  HostBuffer input_memory, output_memory;
  HostBuffer swap_memory;    // [num_swap_blocks] the plan's swaps out, urgent ones first
  int32_t urgent_swaps = 0;  // of blocks that the plan gives to a table
  std::vector<PlacedAdapter> placed_adapters;
  std::vector<AdapterRun> picked_runs;    // of the picks
  AdapterRows adapters, picked_adapters;  // those of the plan, and picked_runs
  int32_t num_places = 0;                 // in use of StepInputs::places; 0: no adapters
  ConstraintWork constraint;
  std::function<void()> fill_masks;  // what Backend::after_last_step calls
  StepInputs inputs{};               // host
  int64_t input_bytes = 0;           // used
  int32_t num_picks = 0;
  int32_t padded_rows = 0;    // > 0: a graph of this many rows runs the step
  int32_t padded_tokens = 0;  // > 0: a graph of this many tokens runs its forward pass
  // [logit_rows, vocab] raw logits, float; grows with what steps ask for. A copy to memory of
  // another kind would hold up the thread that submits.
  HostBuffer logits;
  SampleOutputs sampled{};    // host, [max_sampled]
  SampleOutputs scored{};     // host, [max_batch_tokens]
  int32_t* drafts = nullptr;  // host, [max_slots, max_sample - 1] what was drafted
  float* pooled = nullptr;    // host, [max_slots, pooled_width] sums that are complete, in order
  int64_t pooled_width = 0;
  std::chrono::steady_clock::time_point submitted, started, finished;
};

// Device buffers that the steps of the stream use one after the other.
struct StepBuffers {
  StepInputs inputs;
  int32_t* ids;          // [max_batch_tokens]
  int32_t* positions;    // [max_batch_tokens]
  int32_t* token_rows;   // [max_batch_tokens]
  OutputBuffer sampled;  // [max_sampled]
  OutputBuffer scored;   // [max_batch_tokens]
  int32_t* drafts;       // [max_slots, max_sample - 1]
  int32_t* next_ids;     // [max_batch_tokens] behind those of the batch, for drafters with a lag
  int32_t* draft_picks;  // [max_slots] Drafter::pick
  Tensor sums;           // [max_slots, hidden] f32: of the hidden states of each slot
  int32_t max_logit_rows;

  // Those of `model`, and of the drafter if there is one, too.
  static StepBuffers carve(Arena& arena, Model& model, Drafter* drafter, const BackendInfo& backend,
                           const PlanLimits& limits);
};

// Decode steps of a graph are recorded for contexts up to this and for all longer ones.
constexpr int32_t kShortContext = 512;

// Which steps become graphs: see EngineOptions::graph_sizes and prefill_graph_sizes.
struct GraphPlan {
  std::vector<int32_t>
      sizes;  // ascending, at most max_slots; empty: no graphs of pure decode steps
  std::vector<int32_t> prefill_sizes;  // ascending, at most max_batch_tokens; the same of others
  int32_t max_context = 0;             // bound for the longest sequence
};

// Everything a step touches; built once by the engine, outlives all steps.
class StepRunner {
 public:
  StepRunner(Backend& backend, const Model& model, const Slots& slots, Constraints& constraints,
             const KvCache& kv, const SwapPool& swap, const StepBuffers& buffers, GraphPlan graphs,
             const DraftOptions& drafts, Drafter* drafter, const Adapters* adapters)
      : backend_(backend),
        model_(model),
        slots_(slots),
        constraints_(constraints),
        kv_(kv),
        swap_(swap),
        buffers_(buffers),
        graphs_(std::move(graphs)),
        ngrams_{drafts.ngram_min, drafts.ngram_max},
        max_followed_(drafts.max_rows),
        drafter_(drafter),
        adapters_(adapters) {}

  // Memory of a step that will be staged and run here.
  void prepare(StagedStep& step, const PlanLimits& limits) const;
  // The same for swaps, once the swap pool is there.
  void prepare_swaps(StagedStep& step) const;
  // At start-up, with `step` free: records a step without tokens for every graph. A backend that is
  // alone leaves out prompts with long contexts: they are recorded beside their first run, which
  // takes longer. The list follows from the options alone, never from the time it takes, so that
  // all ranks of a model record the same.
  void record_graphs(StagedStep& step);
  // On the engine's thread: derives what the stream needs besides the plan.
  void stage(StagedStep& step) {
    stage(step, padded_rows(step.plan), padded_tokens(step.plan));
    constraints_.stage(step.plan, step.sampled.tokens, step.drafts, step.constraint);
  }
  // On the stream. After a step failed, later ones fail too: the slot tables may lack its tokens.
  void run(StagedStep& step);

 private:
  int32_t padded_rows(const ParsedPlan& plan) const;
  int32_t padded_tokens(const ParsedPlan& plan) const;
  // Rows that a graph of so many tokens has room for.
  int32_t bounded_rows(int32_t tokens) const;
  void stage(StagedStep& step, int32_t graph_rows, int32_t graph_tokens);  // 0: not a graph's
  void stage_swaps(StagedStep& step);
  // Once the picks are.
  void stage_adapters(StagedStep& step) const;
  void move_blocks(const StagedStep& step) const;
  // `record`: at start-up, see Backend::record_graph.
  void run_decode_graph(StagedStep& step, const StepBatch& batch, bool record = false);
  void execute(StagedStep& step);
  // At start-up: a step of this graph without tokens.
  void record_graph(StagedStep& step, int32_t rows, int32_t tokens);
  int32_t graph_context(const ParsedPlan& plan) const;
  StepBatch make_batch(const StagedStep& step) const;
  // Hidden states of a step.
  struct States {
    Tensor rows;
    bool by_pick;  // row i is of pick i, not of batch row i
  };
  States forward(const StepBatch& batch, const StagedStep& step) const;
  // The same by a graph, of all tokens of the step and some more.
  States forward_graph(const StagedStep& step, bool record = false) const;
  // Of picks first, first + 1, .. of the step.
  Tensor logits(const States& states, int32_t first, int32_t count) const;
  // The same of this rank's share of the vocabulary.
  Tensor own_logits(const States& states, int32_t first, int32_t count) const;
  void part_ranks() const noexcept;
  void score_prompts(const StagedStep& step, const States& states) const;
  void copy_logits(StagedStep& step, const States& states) const;
  void pool(StagedStep& step, const States& states) const;
  void sample(const StepBatch& batch, const States& states) const;
  // Row i of the states is of pick i of the step, not of its batch row i.
  bool picks_states(const StagedStep& step) const;
  // A network that drafts is to see this step.
  bool follows(const ParsedPlan& plan) const;
  // Has the drafter go through the tokens of the step; behind its samples.
  void follow(const StepBatch& batch, const States& states) const;
  // Drafts for the rows of the next step.
  void draft(const StagedStep& step) const;
  // Of the target's keys and values, and of the drafter's, which lie behind them.
  std::span<const KvLayer> target_layers() const;
  std::span<const KvLayer> drafter_layers() const;
  // What constrained sequences may take next; ahead of their sample.
  void constrain(StagedStep& step);

  Backend& backend_;
  const Model& model_;
  const Slots& slots_;
  Constraints& constraints_;
  const KvCache& kv_;
  const SwapPool& swap_;
  StepBuffers buffers_;
  std::vector<int32_t> given_;  // blocks of the plan in hand, sorted; engine's thread
  GraphPlan graphs_;
  NgramRange ngrams_;
  int32_t max_followed_;      // DraftOptions::max_rows
  Drafter* drafter_;          // null: n-grams, or no drafts
  const Adapters* adapters_;  // null: no room for any
  // Where a recorded step without its sample leaves the logits, by the key of its graph.
  std::map<uint64_t, Tensor> graph_logits_;
  std::atomic<bool> failed_{false};
};

}  // namespace inferd
