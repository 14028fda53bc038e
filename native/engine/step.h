// One step: what the plan asks, on its way through the device, and what comes back.
//
//   submit:  words -> PlanChecker -> StagedStep (host copy, one of two)                 engine's
//   thread run:     slots, copies, gather tokens, forward, prompt logprobs, raw logits, sample
//   backend's stream wait:    StagedStep -> result body engine's thread
//
// A StagedStep belongs to the stream between submit and wait; two of them alternate, so at most two
// steps are in flight.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan.h"
#include "engine/slots.h"
#include "models/decoder.h"

namespace inferd {

// SampleOutputs with room for `rows` entries, carved from `arena`.
SampleOutputs carve_outputs(Arena& arena, int64_t rows);

struct StagedStep {
  std::vector<int32_t> words;  // the plan, as long as the stream may read it
  ParsedPlan plan;
  std::vector<int32_t> picks;    // batch rows that get logits: samples, then prompts, then raw rows
  std::vector<int32_t> targets;  // [prompts] token ids to score
  std::vector<float> logits;     // [logit_rows, vocab] raw logits; empty outside tests
  SampleOutputs sampled{};       // device, [max_slots]
  SampleOutputs scored{};        // device, [max_batch_tokens]
  std::chrono::steady_clock::time_point submitted, started, finished;
};

// Buffers that the steps of the stream use one after the other.
struct StepBuffers {
  DecoderBuffers decoder;
  PlanRow* rows;         // [max_slots]
  PlanSample* samples;   // [max_slots]
  int32_t* row_offsets;  // [max_slots + 1]
  int32_t* ids;          // [max_batch_tokens]
  int32_t* positions;    // [max_batch_tokens]
  int32_t* token_rows;   // [max_batch_tokens]
  int32_t* picks;        // [max_slots + 2 max_batch_tokens]
  int32_t* targets;      // [max_batch_tokens]
  int32_t max_logit_rows;

  static StepBuffers carve(Arena& arena, const ModelConfig& config, DType activation,
                           const PlanLimits& limits);
};

// Everything a step touches; built once by the engine, outlives all steps.
class StepRunner {
 public:
  StepRunner(Backend& backend, const Decoder& decoder, const Slots& slots,
             const std::vector<KvLayer>& kv, const StepBuffers& buffers)
      : backend_(backend), decoder_(decoder), slots_(slots), kv_(kv), buffers_(buffers) {}

  // On the engine's thread: derives what the stream needs besides the plan.
  void stage(StagedStep& step) const;
  // On the stream. After a step failed, later ones fail too: the slot tables may lack its tokens.
  void run(StagedStep& step);

 private:
  void execute(StagedStep& step);
  StepBatch upload_batch(const StagedStep& step) const;
  void score_prompts(StagedStep& step) const;
  void copy_logits(StagedStep& step) const;
  void sample(StagedStep& step, const StepBatch& batch) const;

  Backend& backend_;
  const Decoder& decoder_;
  const Slots& slots_;
  const std::vector<KvLayer>& kv_;
  StepBuffers buffers_;
  std::atomic<bool> failed_{false};
};

}  // namespace inferd
