// See step_runner.h: what becomes of a step on the stream, in its order. What the engine's thread
// makes ready for it is in step_staging.cpp.
#include "engine/step_runner.h"

#include <algorithm>

#include "core/error.h"

namespace inferd {
namespace {

// In the keys of graphs that run a forward pass alone.
constexpr uint64_t kForwardGraph = uint64_t{1} << 63;

SampleOutputs from(const SampleOutputs& o, int64_t row) {
  return {o.tokens + row,
          o.logprobs + row,
          o.ranks + row,
          o.top_ids + row * kMaxTopLogprobs,
          o.top_logprobs + row * kMaxTopLogprobs,
          o.top_counts + row};
}

}  // namespace

void StepRunner::run(StagedStep& step) {
  step.started = std::chrono::steady_clock::now();
  if (failed_) throw Error(ErrorCode::kDevice, "an earlier step failed");
  try {
    execute(step);
  } catch (...) {
    failed_ = true;
    part_ranks();
    throw;
  }
  step.finished = std::chrono::steady_clock::now();
}

// In a catch block: the other ranks would wait for what this one does not do any more.
void StepRunner::part_ranks() const noexcept {
  Comm* comm = backend_.comm();
  if (comm == nullptr) return;
  try {
    throw;
  } catch (const Error& e) {
    comm->abort(format("rank %d: %s", comm->rank(), e.what()), e.code);
  } catch (const std::bad_alloc&) {
    comm->abort(format("rank %d is out of memory", comm->rank()), ErrorCode::kOutOfMemory);
  } catch (const std::exception& e) {
    comm->abort(format("rank %d: %s", comm->rank(), e.what()));
  } catch (...) {
    comm->abort(format("rank %d failed", comm->rank()));
  }
}

void StepRunner::move_blocks(const StagedStep& step) const {
  const ParsedPlan& plan = step.plan;
  const auto count = [](std::span<const BlockCopy> pairs) {
    return static_cast<int32_t>(pairs.size());
  };
  if (!plan.swap_outs.empty()) {
    backend_.swap_out(swap_, step.swap_memory.as<const BlockCopy>(), count(plan.swap_outs),
                      step.urgent_swaps);
  }
  if (!plan.copies.empty())
    backend_.copy_blocks(kv_.arrays(), plan.copies.data(), count(plan.copies));
  if (!plan.swap_ins.empty()) backend_.swap_in(swap_, plan.swap_ins.data(), count(plan.swap_ins));
}

void StepRunner::execute(StagedStep& step) {
  const ParsedPlan& plan = step.plan;
  backend_.apply_slots(slots_.tables(), step.words.as<const int32_t>());
  move_blocks(step);
  if (adapters_ != nullptr) adapters_->place(step.placed_adapters);
  if (plan.rows.empty()) {
    model_.stand_by();
    return constrain(step);
  }
  backend_.copy_in(buffers_.inputs.rows, step.inputs.rows, static_cast<size_t>(step.input_bytes));
  if (step.num_places > 0) {
    backend_.copy_in(buffers_.inputs.places, step.inputs.places,
                     static_cast<size_t>(step.num_places) * sizeof(int32_t));
  }
  const StepBatch batch = make_batch(step);
  if (step.padded_rows > 0) {
    run_decode_graph(step, batch);
    if (follows(plan)) follow(batch, {model_.states(batch.num_tokens), true});
  } else {
    const States states = step.padded_tokens > 0 ? forward_graph(step) : forward(batch, step);
    score_prompts(step, states);
    copy_logits(step, states);
    pool(step, states);
    constrain(step);
    sample(batch, states);
    if (batch.drafted) backend_.accept_drafts(slots_.tables(), batch, buffers_.sampled.view);
    if (follows(plan)) follow(batch, states);
  }
  if (!plan.drafts.empty()) draft(step);
  const auto bring_home = [&](const SampleOutputs& host, const OutputBuffer& device, bool tops) {
    backend_.copy_out(host.tokens, device.view.tokens,
                      static_cast<size_t>(tops ? device.bytes : device.small_bytes));
  };
  if (!plan.samples.empty()) bring_home(step.sampled, buffers_.sampled, plan.max_top > 0);
  if (!plan.prompts.empty()) bring_home(step.scored, buffers_.scored, true);
}

void StepRunner::run_decode_graph(StagedStep& step, const StepBatch& batch, bool record) {
  const bool masked = !step.constraint.sampled.empty();
  // The key says all that the body depends on besides the contents of device memory.
  const uint64_t key = static_cast<uint64_t>(step.padded_rows) << 4 |
                       (step.num_places > 0 ? 8u : 0u) | (masked ? 4u : 0u) |
                       (batch.max_context == kShortContext ? 2u : 0u) |
                       (batch.plain_greedy ? 1u : 0u);
  if (!masked) {
    const auto body = [&] { sample(batch, forward(batch, step)); };
    if (record) return backend_.record_graph(key, body);
    backend_.run_graph(key, body);
    return constrain(step);
  }
  // The masks come between the graph and the sample. Such steps are recorded when one first comes.
  backend_.run_graph(
      key, [&] { graph_logits_[key] = logits(forward(batch, step), 0, batch.num_samples); });
  constrain(step);
  backend_.sample(graph_logits_[key], slots_.tables(), batch, buffers_.sampled.view);
}

StepRunner::States StepRunner::forward_graph(const StagedStep& step, bool record) const {
  StepBatch batch = make_batch(step);
  batch.num_rows = bounded_rows(step.padded_tokens);
  batch.num_tokens = step.padded_tokens;
  batch.host_rows = nullptr;
  batch.max_row_count = step.padded_tokens;
  batch.max_context = graph_context(step.plan);
  batch.bounded = true;
  const uint64_t key = kForwardGraph | static_cast<uint64_t>(step.padded_tokens) << 4 |
                       (batch.max_context == kShortContext ? 2u : 0u);
  const auto body = [&] {
    backend_.gather_tokens(slots_.tables(), batch);
    model_.forward(
        {.kv = target_layers(), .slots = slots_.tables(), .batch = batch, .picks = nullptr});
  };
  if (record) {
    backend_.record_graph(key, body);
  } else {
    backend_.run_graph(key, body);
  }
  return {model_.states(step.plan.header.num_tokens), false};
}

void StepRunner::constrain(StagedStep& step) {
  ConstraintWork& work = step.constraint;
  if (work.empty()) return;
  step.fill_masks = [this, &work] { constraints_.apply(work); };
  backend_.after_last_step(step.fill_masks);
  constraints_.upload(work);
}

void StepRunner::record_graphs(StagedStep& step) {
  std::erase_if(graphs_.prefill_sizes, [this](int32_t tokens) {
    return !backend_.takes_bounded(tokens, target_layers());
  });
  // What a daemon meets first comes first: greedy or not, short contexts, then long ones.
  for (const int32_t context : {kShortContext, kShortContext + 1}) {
    if (context > kShortContext && graphs_.max_context <= kShortContext) return;
    for (const int32_t size : graphs_.sizes) {
      for (const bool greedy : {true, false}) {
        if (size > buffers_.max_logit_rows) continue;
        step.plan = {};
        step.plan.row_offsets = {0};
        step.plan.pure_decode = true;
        step.plan.plain_greedy = greedy;
        step.plan.max_context = context;
        record_graph(step, size, 0);
      }
    }
    if (context > kShortContext && backend_.comm() == nullptr) return;
    for (const int32_t size : graphs_.prefill_sizes) {
      step.plan = {};
      step.plan.row_offsets = {0};
      step.plan.max_context = context;
      record_graph(step, 0, size);
    }
  }
}

void StepRunner::record_graph(StagedStep& step, int32_t rows, int32_t tokens) {
  stage(step, rows, tokens);
  backend_.run_step(0, [&] {
    backend_.copy_in(buffers_.inputs.rows, step.inputs.rows, static_cast<size_t>(step.input_bytes));
    if (tokens > 0) {
      forward_graph(step, true);
    } else {
      run_decode_graph(step, make_batch(step), true);
    }
  });
  while (!backend_.wait_step(0, 1'000'000)) {
  }
}

// Steps of a graph share their launches, so the bound of the context is one of two.
int32_t StepRunner::graph_context(const ParsedPlan& plan) const {
  return plan.max_context <= kShortContext ? kShortContext : graphs_.max_context;
}

StepBatch StepRunner::make_batch(const StagedStep& step) const {
  const ParsedPlan& plan = step.plan;
  const bool graph = step.padded_rows > 0;
  const auto or_padded = [&](size_t n) {
    return graph ? step.padded_rows : static_cast<int32_t>(n);
  };
  const int32_t max_context = graph ? graph_context(plan) : plan.max_context;
  return {.num_rows = or_padded(plan.rows.size()),
          .num_tokens = or_padded(static_cast<size_t>(plan.header.num_tokens)),
          .num_samples = or_padded(plan.sample_rows.size()),
          .host_rows = step.inputs.rows,
          .host_samples = step.inputs.samples,
          .rows = buffers_.inputs.rows,
          .samples = buffers_.inputs.samples,
          .row_offsets = buffers_.inputs.row_offsets,
          .ids = buffers_.ids,
          .positions = buffers_.positions,
          .token_rows = buffers_.token_rows,
          .max_row_count = plan.max_row_count,
          .max_context = max_context,
          .plain_greedy = plan.plain_greedy,
          .drafted = plan.drafted,
          .adapters = step.num_places > 0 ? &step.adapters : nullptr};
}

StepRunner::States StepRunner::forward(const StepBatch& batch, const StagedStep& step) const {
  backend_.gather_tokens(slots_.tables(), batch);
  const bool in_order = step.plan.pure_decode;  // the picks of such a step are its rows
  const bool by_pick = picks_states(step);
  const Picks picks = {.rows = buffers_.inputs.picks,
                       .host_rows = step.inputs.picks,
                       .count = step.num_picks,
                       .adapters = step.num_places > 0 ? &step.picked_adapters : nullptr};
  return {model_.forward({.kv = target_layers(),
                          .slots = slots_.tables(),
                          .batch = batch,
                          .picks = by_pick && !in_order ? &picks : nullptr}),
          by_pick};
}

Tensor StepRunner::logits(const States& states, int32_t first, int32_t count) const {
  if (states.by_pick) return model_.logits(states.rows, first, count);
  return model_.logits(states.rows, buffers_.inputs.picks + first, count);
}

Tensor StepRunner::own_logits(const States& states, int32_t first, int32_t count) const {
  if (states.by_pick) return model_.own_logits(states.rows, first, count);
  return model_.own_logits(states.rows, buffers_.inputs.picks + first, count);
}

void StepRunner::score_prompts(const StagedStep& step, const States& states) const {
  const std::vector<PromptTarget>& prompts = step.plan.prompts;
  const auto first_pick = static_cast<int32_t>(step.plan.sample_rows.size());
  const int32_t total = static_cast<int32_t>(prompts.size());
  for (int32_t at = 0; at < total; at += buffers_.max_logit_rows) {
    const int32_t count = std::min(total - at, buffers_.max_logit_rows);
    // One number for the piece; what a position did not ask for is left out of the result.
    int32_t top = 0;
    for (int32_t i = at; i < at + count; ++i)
      top = std::max(top, prompts[static_cast<size_t>(i)].top);
    backend_.score(logits(states, first_pick + at, count), buffers_.inputs.targets + at, top,
                   from(buffers_.scored.view, at));
  }
}

void StepRunner::copy_logits(StagedStep& step, const States& states) const {
  const int32_t total = static_cast<int32_t>(step.plan.logit_rows.size());
  const int32_t first_pick = step.num_picks - total;
  const int64_t vocab = model_.config().vocab_size;
  for (int32_t at = 0; at < total; at += buffers_.max_logit_rows) {
    const int32_t count = std::min(total - at, buffers_.max_logit_rows);
    const Tensor rows = logits(states, first_pick + at, count);
    const bool packed = rows.stride[0] == vocab;
    for (int32_t i = 0; i < (packed ? 1 : count); ++i) {
      backend_.copy_out(step.logits.as<float>() + (at + i) * vocab,
                        rows.as<float>() + i * rows.stride[0],
                        static_cast<size_t>((packed ? count : 1) * vocab) * sizeof(float));
    }
  }
}

void StepRunner::pool(StagedStep& step, const States& states) const {
  const std::vector<PoolSpan>& pools = step.plan.pools;
  if (pools.empty()) return;
  backend_.sum_rows(buffers_.sums, states.rows, buffers_.inputs.sums,
                    static_cast<int32_t>(pools.size()));
  const int64_t width = step.pooled_width;
  float* home = step.pooled;
  for (const PoolSpan& p : pools) {
    if (p.over == 0) continue;
    backend_.copy_out(home, buffers_.sums.as<float>() + p.slot * width,
                      static_cast<size_t>(width) * sizeof(float));
    home += width;
  }
}

void StepRunner::sample(const StepBatch& batch, const States& states) const {
  for (int32_t at = 0; at < batch.num_samples; at += buffers_.max_logit_rows) {
    StepBatch piece = batch;
    piece.num_samples = std::min(batch.num_samples - at, buffers_.max_logit_rows);
    piece.host_samples += at;
    piece.samples += at;
    const SampleOutputs out = from(buffers_.sampled.view, at);
    if (batch.plain_greedy && !model_.shard().whole()) {
      // Only the best of each rank is needed, not all logits in one place.
      backend_.sample_greedy(own_logits(states, at, piece.num_samples),
                             static_cast<int32_t>(model_.ids().first), slots_.tables(), piece, out);
    } else {
      backend_.sample(logits(states, at, piece.num_samples), slots_.tables(), piece, out);
    }
  }
}

std::span<const KvLayer> StepRunner::target_layers() const {
  return std::span(kv_.layers()).first(model_.kv_specs().size());
}

std::span<const KvLayer> StepRunner::drafter_layers() const {
  return std::span(kv_.layers()).subspan(model_.kv_specs().size());
}

bool StepRunner::follows(const ParsedPlan& plan) const {
  if (drafter_ == nullptr) return false;
  return !plan.drafts.empty() || max_followed_ == 0 ||
         static_cast<int32_t>(plan.rows.size()) <= max_followed_;
}

void StepRunner::follow(const StepBatch& batch, const States& states) const {
  follow_step(backend_, *drafter_, model_,
              {.kv = drafter_layers(),
               .slots = slots_.tables(),
               .batch = batch,
               .states = states.rows,
               .ids = buffers_.next_ids});
}

void StepRunner::draft(const StagedStep& step) const {
  const std::vector<DraftRow>& drafts = step.plan.drafts;
  const StepInputs& in = buffers_.inputs;
  const SlotTables& t = slots_.tables();
  const auto rows = static_cast<int32_t>(drafts.size());
  if (drafter_ == nullptr) {
    backend_.draft_ngram(t, in.drafts, rows, ngrams_, buffers_.drafts);
  } else {
    draft_ahead(backend_, *drafter_,
                {.kv = drafter_layers(),
                 .slots = t,
                 .sequences = drafts,
                 .rows = in.drafts,
                 .host_rows = step.inputs.draft_rows,
                 .plan_rows = in.draft_rows,
                 .offsets = in.draft_offsets,
                 .ids = buffers_.ids,
                 .positions = buffers_.positions,
                 .token_rows = buffers_.token_rows,
                 .picks = buffers_.draft_picks,
                 .drafts = buffers_.drafts,
                 .max_context = step.plan.max_context,
                 .max_logit_rows = buffers_.max_logit_rows});
  }
  // Only masks are made from them on the host.
  if (step.plan.constrained.empty()) return;
  backend_.copy_out(step.drafts, buffers_.drafts,
                    sizeof(int32_t) * static_cast<size_t>(rows * (t.max_sample - 1)));
}

}  // namespace inferd
