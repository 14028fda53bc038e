// See step.h.
#include "engine/step.h"

#include <algorithm>

#include "core/error.h"

namespace inferd {
namespace {

// Logits are the widest rows of a step, so only this much memory is set aside for them and long
// lists go through in pieces.
constexpr int64_t kLogitBytes = 64 << 20;
constexpr int64_t kMinLogitRows = 16;

SampleOutputs from(const SampleOutputs& o, int64_t row) {
  return {o.tokens + row,
          o.logprobs + row,
          o.ranks + row,
          o.top_ids + row * kMaxTopLogprobs,
          o.top_logprobs + row * kMaxTopLogprobs,
          o.top_counts + row};
}

}  // namespace

SampleOutputs carve_outputs(Arena& arena, int64_t rows) {
  SampleOutputs o{};
  o.tokens = arena.take<int32_t>(rows);
  o.logprobs = arena.take<float>(rows);
  o.ranks = arena.take<int32_t>(rows);
  o.top_ids = arena.take<int32_t>(rows * kMaxTopLogprobs);
  o.top_logprobs = arena.take<float>(rows * kMaxTopLogprobs);
  o.top_counts = arena.take<int32_t>(rows);
  return o;
}

StepBuffers StepBuffers::carve(Arena& arena, const ModelConfig& config, DType activation,
                               const PlanLimits& limits) {
  const int64_t tokens = limits.max_batch_tokens, slots = limits.max_slots;
  const int64_t most = std::max(tokens, slots);
  StepBuffers b{};
  b.max_logit_rows = static_cast<int32_t>(
      std::min(most, std::max(kMinLogitRows, kLogitBytes / (config.vocab_size * 4))));
  b.decoder = DecoderBuffers::carve(arena, config, activation, tokens, b.max_logit_rows);
  b.rows = arena.take<PlanRow>(slots);
  b.samples = arena.take<PlanSample>(slots);
  b.row_offsets = arena.take<int32_t>(slots + 1);
  b.ids = arena.take<int32_t>(tokens);
  b.positions = arena.take<int32_t>(tokens);
  b.token_rows = arena.take<int32_t>(tokens);
  b.picks = arena.take<int32_t>(slots + 2 * tokens);
  b.targets = arena.take<int32_t>(tokens);
  return b;
}

void StepRunner::stage(StagedStep& step) const {
  const ParsedPlan& plan = step.plan;
  step.picks.assign(plan.sample_rows.begin(), plan.sample_rows.end());
  step.targets.clear();
  for (const PromptTarget& t : plan.prompts) {
    step.picks.push_back(t.batch_row);
    step.targets.push_back(t.token);
  }
  for (const LogitRow& r : plan.logit_rows) step.picks.push_back(r.batch_row);
  step.logits.resize(plan.logit_rows.size() * static_cast<size_t>(decoder_.config().vocab_size));
}

void StepRunner::run(StagedStep& step) {
  step.started = std::chrono::steady_clock::now();
  if (failed_) throw Error(ErrorCode::kDevice, "an earlier step failed");
  try {
    execute(step);
  } catch (...) {
    failed_ = true;
    throw;
  }
  step.finished = std::chrono::steady_clock::now();
}

void StepRunner::execute(StagedStep& step) {
  const ParsedPlan& plan = step.plan;
  backend_.apply_slots(slots_.tables(), step.words.data());
  if (!plan.copies.empty()) {
    for (const KvLayer& layer : kv_)
      backend_.copy_blocks(layer, plan.copies.data(), static_cast<int32_t>(plan.copies.size()));
  }
  if (plan.rows.empty()) return;
  const StepBatch batch = upload_batch(step);
  backend_.gather_tokens(slots_.tables(), batch);
  decoder_.forward(buffers_.decoder, kv_, slots_.tables(), batch);
  score_prompts(step);
  copy_logits(step);
  sample(step, batch);
}

StepBatch StepRunner::upload_batch(const StagedStep& step) const {
  const ParsedPlan& plan = step.plan;
  backend_.copy_in(buffers_.rows, plan.rows.data(), plan.rows.size_bytes());
  backend_.copy_in(buffers_.row_offsets, plan.row_offsets.data(),
                   plan.row_offsets.size() * sizeof(int32_t));
  if (!plan.samples.empty())
    backend_.copy_in(buffers_.samples, plan.samples.data(), plan.samples.size_bytes());
  if (!step.picks.empty())
    backend_.copy_in(buffers_.picks, step.picks.data(), step.picks.size() * sizeof(int32_t));
  if (!step.targets.empty())
    backend_.copy_in(buffers_.targets, step.targets.data(), step.targets.size() * sizeof(int32_t));
  return {.num_rows = static_cast<int32_t>(plan.rows.size()),
          .num_tokens = plan.header.num_tokens,
          .num_samples = static_cast<int32_t>(plan.samples.size()),
          .host_rows = plan.rows.data(),
          .host_samples = plan.samples.data(),
          .rows = buffers_.rows,
          .samples = buffers_.samples,
          .row_offsets = buffers_.row_offsets,
          .ids = buffers_.ids,
          .positions = buffers_.positions,
          .token_rows = buffers_.token_rows,
          .max_row_count = plan.max_row_count,
          .max_context = plan.max_context};
}

void StepRunner::score_prompts(StagedStep& step) const {
  const std::vector<PromptTarget>& prompts = step.plan.prompts;
  const int32_t first_pick = static_cast<int32_t>(step.plan.samples.size());
  const int32_t total = static_cast<int32_t>(prompts.size());
  for (int32_t at = 0; at < total; at += buffers_.max_logit_rows) {
    const int32_t count = std::min(total - at, buffers_.max_logit_rows);
    int32_t top =
        0;  // one number for the piece; what a position did not ask for is left out of the result
    for (int32_t i = at; i < at + count; ++i)
      top = std::max(top, prompts[static_cast<size_t>(i)].top);
    const Tensor logits =
        decoder_.logits(buffers_.decoder, buffers_.picks + first_pick + at, count);
    backend_.score(logits, buffers_.targets + at, top, from(step.scored, at));
  }
}

void StepRunner::copy_logits(StagedStep& step) const {
  const int32_t total = static_cast<int32_t>(step.plan.logit_rows.size());
  const int64_t first_pick = static_cast<int64_t>(step.picks.size()) - total;
  const int64_t vocab = decoder_.config().vocab_size;
  for (int32_t at = 0; at < total; at += buffers_.max_logit_rows) {
    const int32_t count = std::min(total - at, buffers_.max_logit_rows);
    const Tensor logits =
        decoder_.logits(buffers_.decoder, buffers_.picks + first_pick + at, count);
    backend_.download(step.logits.data() + at * vocab, logits.data,
                      static_cast<size_t>(count * vocab) * sizeof(float));
  }
}

void StepRunner::sample(StagedStep& step, const StepBatch& batch) const {
  for (int32_t at = 0; at < batch.num_samples; at += buffers_.max_logit_rows) {
    StepBatch piece = batch;
    piece.num_samples = std::min(batch.num_samples - at, buffers_.max_logit_rows);
    piece.host_samples += at;
    piece.samples += at;
    const Tensor logits = decoder_.logits(buffers_.decoder, buffers_.picks + at, piece.num_samples);
    backend_.sample(logits, slots_.tables(), piece, from(step.sampled, at));
  }
}

}  // namespace inferd
