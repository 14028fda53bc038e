// See constraints.h.
#include "engine/constraints.h"

#include <algorithm>
#include <exception>
#include <span>

#include "grammar/store.h"

namespace inferd {

Constraints::Constraints(Backend& backend, const SlotTables& tables)
    : backend_(backend),
      tables_(tables),
      masks_(backend, int64_t{tables.max_slots} * tables.max_sample * tables.mask_words * 4),
      matchers_(static_cast<size_t>(tables.max_slots)),
      stuck_at_(static_cast<size_t>(tables.max_slots), INT32_MAX) {}

void Constraints::stage(const ParsedPlan& plan, const int32_t* tokens, const int32_t* drafts,
                        ConstraintWork& work) {
  work.taken.swap(taken_);
  taken_.clear();
  work.ended = plan.freed_constraints;
  work.begun.clear();
  for (const NewConstraint& n : plan.new_constraints) {
    work.begun.push_back({n.slot,
                          n.fork_of,
                          GrammarStore::shared().find(n.grammar),
                          {n.outputs.begin(), n.outputs.end()}});
  }
  work.sampled.clear();
  work.stuck.clear();
  const auto before = [&](int32_t slot) -> const ConstraintWork::Taken* {
    for (const ConstraintWork::Taken& t : work.taken)
      if (t.slot == slot) return &t;
    return nullptr;
  };
  for (const size_t i : plan.constrained) {
    const PlanSample& s = plan.samples[i];
    work.sampled.push_back({s.slot, s.count, s.count > 1 ? before(s.slot) : nullptr});
    const auto width = int64_t{tables_.max_sample - 1};
    taken_.push_back({s.slot, s.count, tokens + plan.sample_offsets[i], s.drafts,
                      s.drafts > 0 ? drafts + plan.draft_of[i] * width : nullptr});
  }
  std::sort(work.sampled.begin(), work.sampled.end(),
            [](const auto& a, const auto& b) { return a.slot < b.slot; });
}

void Constraints::apply(ConstraintWork& work) noexcept {
  for (const ConstraintWork::Taken& t : work.taken) {
    MaybeMatcher& matcher = matchers_[static_cast<size_t>(t.slot)];
    // Tokens of a stuck one may be marked at this moment (StagedStep::mark_stuck).
    const int32_t readable = std::min(t.count, stuck_at_[static_cast<size_t>(t.slot)]);
    int32_t i = 0;
    for (; i < readable && matcher && t.tokens[i] >= 0; ++i) take(matcher, t.tokens[i]);
    if (i == readable && readable < t.count) matcher.reset();
  }
  for (const int32_t slot : work.ended) matchers_[static_cast<size_t>(slot)].reset();
  for (const ConstraintWork::Begun& b : work.begun) {
    try {
      begin(b);
    } catch (const std::exception&) {  // out of memory: it gets no token
      matchers_[static_cast<size_t>(b.slot)].reset();
    }
  }
  for (const ConstraintWork::Sampled& sampled : work.sampled) fill(sampled, work.stuck);
}

void Constraints::take(MaybeMatcher& matcher, int32_t token) {
  if (!matcher) return;
  try {
    if (matcher->accept(token)) return;
  } catch (const std::exception&) {  // a bound of the matcher: it cannot go on
  }
  matcher.reset();
}

void Constraints::begin(const ConstraintWork::Begun& begun) {
  MaybeMatcher& matcher = matchers_[static_cast<size_t>(begun.slot)];
  if (begun.fork_of >= 0) {
    matcher = matchers_[static_cast<size_t>(begun.fork_of)];
    return;
  }
  matcher.reset();
  if (begun.grammar == nullptr) return;
  matcher.emplace(begun.grammar);
  for (const int32_t token : begun.outputs) take(matcher, token);
}

// Behind a draft that the grammar refuses nothing is taken, so that its masks do not matter; behind
// one that it takes but cannot go on from, whoever gets there is stuck.
void Constraints::fill(const ConstraintWork::Sampled& sampled, std::vector<TokenSample>& stuck) {
  MaybeMatcher& matcher = matchers_[static_cast<size_t>(sampled.slot)];
  int32_t& stuck_at = stuck_at_[static_cast<size_t>(sampled.slot)] = INT32_MAX;
  const auto add_stuck = [&](int32_t offset) {
    stuck.push_back({.slot = sampled.slot, .offset = offset});
    stuck_at = std::min(stuck_at, offset);
  };
  if (!fill(matcher, sampled.slot, 0)) add_stuck(0);
  if (sampled.count == 1 || sampled.taken == nullptr) return;
  const ConstraintWork::Taken& before = *sampled.taken;
  try {
    MaybeMatcher ahead = matcher;
    for (int32_t i = 1; i < sampled.count; ++i) {
      const bool drafted = ahead && i <= before.num_drafts && before.drafts[i - 1] >= 0;
      if (!drafted || !ahead->accept(before.drafts[i - 1])) return;
      if (!fill(ahead, sampled.slot, i)) add_stuck(i);
    }
  } catch (const std::exception&) {  // out of memory, or a bound of the matcher: as stuck there
    for (int32_t i = 1; i < sampled.count; ++i) add_stuck(i);
  }
}

// A mask of zeros leaves the sampler no token, and the slot no matcher.
bool Constraints::fill(MaybeMatcher& matcher, int32_t slot, int32_t offset) {
  const std::span mask(
      masks_.as<uint32_t>() + first_word(slot) + int64_t{offset} * tables_.mask_words,
      static_cast<size_t>(tables_.mask_words));
  try {
    if (matcher) matcher->fill_mask(mask);
  } catch (const std::exception&) {
    matcher.reset();
  }
  if (!matcher) std::fill(mask.begin(), mask.end(), 0u);
  const bool any = std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
  if (!any) matcher.reset();
  return any;
}

// Neighbouring slots in one copy.
void Constraints::upload(const ConstraintWork& work) const {
  const auto& sampled = work.sampled;
  for (size_t first = 0, end = 0; first < sampled.size(); first = end) {
    const int64_t from = first_word(sampled[first].slot);
    int64_t to = 0;
    do {
      to = first_word(sampled[end].slot) + int64_t{sampled[end].count} * tables_.mask_words;
      ++end;
    } while (end < sampled.size() && first_word(sampled[end].slot) == to);
    backend_.copy_in(tables_.masks + from, masks_.as<uint32_t>() + from,
                     static_cast<size_t>(to - from) * sizeof(uint32_t));
  }
}

}  // namespace inferd
