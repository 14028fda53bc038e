// Steps off the stream: the memory of a step, what the stream needs besides the plan, and what a
// finished one gave. See step_runner.h.
#include <algorithm>

#include "engine/step_runner.h"

namespace inferd {
namespace {

// Logits are the widest rows of a step, so only this much memory is set aside for them and long
// lists go through in pieces.
constexpr int64_t kLogitBytes = 64 << 20;
constexpr int64_t kDeviceLogitBytes = 512 << 20;  // of a device's own memory
constexpr int64_t kMinLogitRows = 16;

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

}  // namespace inferd
