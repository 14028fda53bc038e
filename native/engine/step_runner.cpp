// See step_runner.h. Longer than other files: what becomes of a step, in its order.
#include "engine/step_runner.h"

#include <algorithm>

#include "core/error.h"

namespace inferd {
namespace {

// In the keys of graphs that run a forward pass alone.
constexpr uint64_t kForwardGraph = uint64_t{1} << 63;

// Logits are the widest rows of a step, so only this much memory is set aside for them and long
// lists go through in pieces.
constexpr int64_t kLogitBytes = 64 << 20;
constexpr int64_t kDeviceLogitBytes = 512 << 20;  // of a device's own memory
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

// More picks than tokens come of raw logits and pooled states beside those of a prompt. A drafter
// may read the states of all tokens.
bool StepRunner::picks_states(const StagedStep& step) const {
  if (step.padded_tokens > 0) return false;
  if (step.plan.pure_decode) return true;
  if (drafter_ != nullptr && drafter_->reads() != TargetStates::kNone) return false;
  return step.num_picks <= step.plan.header.num_tokens;
}

int32_t StagedStep::tokens_given(size_t index) const {
  const auto first = static_cast<size_t>(plan.sample_offsets[index]);
  const auto end = static_cast<size_t>(plan.sample_offsets[index + 1]);
  size_t at = first + 1;
  while (at < end && sampled.tokens[at] >= kNoToken) ++at;
  return static_cast<int32_t>(at - first);
}

int32_t StagedStep::drafts_computed(size_t index) const {
  const auto first = plan.sample_offsets[index], end = plan.sample_offsets[index + 1];
  int32_t at = first + 1;
  while (at < end && sampled.tokens[at] != kNoDraft) ++at;
  return at - first - 1;
}

void StagedStep::mark_stuck() {
  for (const TokenSample& stuck : constraint.stuck) {
    for (size_t i = 0; i < plan.samples.size(); ++i) {
      if (plan.samples[i].slot != stuck.slot) continue;
      int32_t& token = sampled.tokens[plan.sample_offsets[i] + stuck.offset];
      if (token >= 0) token = kNoToken;  // else a draft before it was refused
    }
  }
}

OutputBuffer OutputBuffer::carve(Arena& arena, int64_t rows) {
  OutputBuffer o;
  const int64_t start = arena.mark();
  o.view.tokens = arena.take<int32_t>(rows);
  o.view.logprobs = arena.take<float>(rows);
  o.view.ranks = arena.take<int32_t>(rows);
  o.view.top_counts = arena.take<int32_t>(rows);
  o.small_bytes = arena.mark() - start;
  o.view.top_ids = arena.take<int32_t>(rows * kMaxTopLogprobs);
  o.view.top_logprobs = arena.take<float>(rows * kMaxTopLogprobs);
  o.bytes = arena.mark() - start;
  return o;
}

StepInputs StepInputs::carve(Arena& arena, const PlanLimits& limits) {
  const int64_t tokens = limits.max_batch_tokens, slots = limits.max_slots;
  StepInputs i{};
  i.rows = arena.take<PlanRow>(slots);
  i.samples = arena.take<TokenSample>(max_sampled(limits));
  i.row_offsets = arena.take<int32_t>(slots + 1);
  i.drafts = arena.take<DraftRow>(slots);
  i.draft_rows = arena.take<PlanRow>(slots);
  i.draft_offsets = arena.take<int32_t>(slots + 1);
  i.picks = arena.take<int32_t>(max_sampled(limits) + 3 * tokens);
  i.targets = arena.take<int32_t>(tokens);
  i.sums = arena.take<RowSum>(slots);
  i.places = arena.take<int32_t>(limits.adapter_places > 0 ? 2 * tokens : 0);
  return i;
}

StepBuffers StepBuffers::carve(Arena& arena, Model& model, Drafter* drafter,
                               const BackendInfo& backend, const PlanLimits& limits) {
  const int64_t tokens = limits.max_batch_tokens, sampled = max_sampled(limits);
  const int64_t logit_bytes = backend.host_memory ? kLogitBytes : kDeviceLogitBytes;
  StepBuffers b{};
  b.max_logit_rows = static_cast<int32_t>(
      std::min(std::max(tokens, sampled),
               std::max(kMinLogitRows, logit_bytes / (limits.vocab_size * int64_t{4}))));
  model.carve(arena, tokens, b.max_logit_rows);
  if (drafter != nullptr) drafter->carve(arena, tokens, limits.max_slots, b.max_logit_rows);
  b.next_ids = arena.take<int32_t>(drafter == nullptr ? 0 : tokens);
  b.draft_picks = arena.take<int32_t>(drafter == nullptr ? 0 : limits.max_slots);
  b.inputs = StepInputs::carve(arena, limits);
  b.ids = arena.take<int32_t>(tokens);
  b.positions = arena.take<int32_t>(tokens);
  b.token_rows = arena.take<int32_t>(tokens);
  b.sampled = OutputBuffer::carve(arena, sampled);
  b.scored = OutputBuffer::carve(arena, tokens);
  b.drafts = arena.take<int32_t>(max_drafted(limits));
  b.sums = arena.take_matrix(DType::kF32, limits.max_slots, model.config().hidden_size);
  return b;
}

void StepRunner::prepare(StagedStep& step, const PlanLimits& limits) const {
  Arena inputs(nullptr);
  StepInputs::carve(inputs, limits);
  step.input_memory = HostBuffer(backend_, inputs.peak());
  inputs = Arena(step.input_memory.as<void>());
  step.inputs = StepInputs::carve(inputs, limits);

  Arena outputs(nullptr);
  const auto carve = [&] {
    step.sampled = OutputBuffer::carve(outputs, max_sampled(limits)).view;
    step.scored = OutputBuffer::carve(outputs, limits.max_batch_tokens).view;
    step.drafts = outputs.take<int32_t>(max_drafted(limits));
    step.pooled = outputs.take<float>(limits.max_slots * step.pooled_width);
  };
  step.pooled_width = model_.config().hidden_size;
  carve();
  step.output_memory = HostBuffer(backend_, outputs.peak());
  outputs = Arena(step.output_memory.as<void>());
  carve();
}

void StepRunner::prepare_swaps(StagedStep& step) const {
  step.swap_memory =
      HostBuffer(backend_, swap_.num_blocks * static_cast<int64_t>(sizeof(BlockCopy)));
}

// A block that is swapped out and given to another sequence at once must be read before this step
// writes to it; the others only before the next step does.
void StepRunner::stage_swaps(StagedStep& step) {
  const ParsedPlan& plan = step.plan;
  step.urgent_swaps = 0;
  if (plan.swap_outs.empty()) return;
  given_.clear();
  for (const BlockSet& b : plan.block_sets) given_.push_back(b.block);
  std::sort(given_.begin(), given_.end());
  auto* first = step.swap_memory.as<BlockCopy>();
  auto* end = std::copy(plan.swap_outs.begin(), plan.swap_outs.end(), first);
  auto* rest = std::stable_partition(first, end, [this](const BlockCopy& c) {
    return std::binary_search(given_.begin(), given_.end(), c.src);
  });
  step.urgent_swaps = static_cast<int32_t>(rest - first);
}

int32_t StepRunner::padded_rows(const ParsedPlan& plan) const {
  const auto rows = static_cast<int32_t>(plan.rows.size());
  if (!plan.pure_decode || rows == 0) return 0;
  const auto size = std::lower_bound(graphs_.sizes.begin(), graphs_.sizes.end(), rows);
  return size == graphs_.sizes.end() || *size > buffers_.max_logit_rows ? 0 : *size;
}

// Steps that are not pure decode, where the host need not know more than how many tokens there are
// at most. Adapters come in runs that the host cuts; rows with drafts are cut by it too.
int32_t StepRunner::padded_tokens(const ParsedPlan& plan) const {
  if (plan.rows.empty() || plan.pure_decode || !plan.adapter_runs.empty()) return 0;
  const auto drafted = [](const PlanRow& row) {
    return (row.flags & kRowFromDevice) != 0 && row.count > 1;
  };
  if (std::any_of(plan.rows.begin(), plan.rows.end(), drafted)) return 0;
  const auto& sizes = graphs_.prefill_sizes;
  const auto size = std::lower_bound(sizes.begin(), sizes.end(), plan.header.num_tokens);
  return size == sizes.end() ? 0 : *size;
}

int32_t StepRunner::bounded_rows(int32_t tokens) const {
  return std::min(tokens, slots_.tables().max_slots);
}

void StepRunner::stage(StagedStep& step, int32_t graph_rows, int32_t graph_tokens) {
  const ParsedPlan& plan = step.plan;
  stage_swaps(step);
  StepInputs& in = step.inputs;
  std::copy(plan.rows.begin(), plan.rows.end(), in.rows);
  TokenSample* sample = in.samples;
  for (const PlanSample& s : plan.samples) {
    for (int32_t i = 0; i < s.count; ++i) *sample++ = {.slot = s.slot, .offset = i};
  }
  std::copy(plan.row_offsets.begin(), plan.row_offsets.end(), in.row_offsets);
  in.draft_offsets[0] = 0;
  for (size_t i = 0; i < plan.drafts.size(); ++i) {
    in.drafts[i] = plan.drafts[i];
    in.draft_rows[i] = {
        .slot = plan.drafts[i].slot, .start = 0, .count = 1, .flags = kRowFromDevice};
    in.draft_offsets[i + 1] = static_cast<int32_t>(i) + 1;
  }
  int32_t* pick = std::copy(plan.sample_rows.begin(), plan.sample_rows.end(), in.picks);
  step.padded_rows = graph_rows;
  step.padded_tokens = graph_tokens;
  const int32_t rows = graph_tokens > 0 ? bounded_rows(graph_tokens) : graph_rows;
  for (auto i = static_cast<int32_t>(plan.rows.size()); i < rows; ++i) {
    in.rows[i] = {.slot = 0, .start = 0, .count = 0, .flags = 0};
    in.row_offsets[i + 1] = in.row_offsets[i];
  }
  for (auto i = static_cast<int32_t>(plan.rows.size()); i < graph_rows; ++i) {
    in.samples[i] = {.slot = -1, .offset = 0};
    *pick++ = i;
  }
  int32_t* target = in.targets;
  for (const PromptTarget& t : plan.prompts) {
    *pick++ = t.batch_row;
    *target++ = t.token;
  }
  auto pooled = static_cast<int32_t>(pick - in.picks);
  for (const PoolSpan& p : plan.pools) {
    for (int32_t i = 0; i < p.count; ++i) *pick++ = p.batch_row + i;
  }
  for (const LogitRow& r : plan.logit_rows) *pick++ = r.batch_row;
  step.num_picks = static_cast<int32_t>(pick - in.picks);
  RowSum* sum = in.sums;
  for (const PoolSpan& p : plan.pools) {
    const int32_t first = picks_states(step) ? pooled : p.batch_row;
    *sum++ = {.to = p.slot, .first = first, .count = p.count, .fresh = p.fresh ? 1 : 0};
    pooled += p.count;
  }
  const void* end = plan.prompts.empty() ? pick : target;
  if (!plan.pools.empty()) end = sum;
  step.input_bytes = static_cast<const std::byte*>(end) - step.input_memory.as<std::byte>();
  stage_adapters(step);
  const auto logit_bytes =
      static_cast<int64_t>(plan.logit_rows.size() * sizeof(float)) * model_.config().vocab_size;
  if (logit_bytes > step.logits.bytes()) step.logits = HostBuffer(backend_, logit_bytes);
}

void StepRunner::stage_adapters(StagedStep& step) const {
  const ParsedPlan& plan = step.plan;
  step.num_places = 0;
  step.picked_runs.clear();
  if (adapters_ == nullptr) return;
  adapters_->stage(plan.adapters, step.placed_adapters);
  if (plan.adapter_runs.empty()) return;
  const int32_t tokens = std::max(plan.header.num_tokens, step.padded_rows);
  int32_t* places = step.inputs.places;
  std::fill_n(places, tokens, kNoAdapter);
  for (const AdapterRun& run : plan.adapter_runs)
    std::fill_n(places + run.first, run.count, run.place);
  step.num_places = tokens;
  step.adapters = {.places = buffers_.inputs.places, .runs = plan.adapter_runs};
  if (plan.pure_decode || !picks_states(step)) return;
  int32_t* picked = places + tokens;
  for (int32_t i = 0; i < step.num_picks; ++i) {
    const int32_t place = picked[i] = places[step.inputs.picks[i]];
    if (place == kNoAdapter) continue;
    std::vector<AdapterRun>& runs = step.picked_runs;
    if (!runs.empty() && runs.back().place == place && runs.back().first + runs.back().count == i) {
      ++runs.back().count;
    } else {
      runs.push_back({i, 1, place});
    }
  }
  step.num_places += step.num_picks;
  step.picked_adapters = {.places = buffers_.inputs.places + tokens, .runs = step.picked_runs};
}

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
