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
      masks_(backend, int64_t{tables.max_slots} * tables.mask_words * 4),
      matchers_(static_cast<size_t>(tables.max_slots)) {}

void Constraints::stage(const ParsedPlan& plan, const int32_t* tokens, ConstraintWork& work) {
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
  for (const size_t i : plan.constrained) {
    const int32_t slot = plan.samples[i].slot;
    work.sampled.push_back(slot);
    taken_.push_back({slot, tokens + plan.sample_offsets[i]});
  }
  std::sort(work.sampled.begin(), work.sampled.end());
}

void Constraints::apply(ConstraintWork& work) noexcept {
  for (const ConstraintWork::Taken& t : work.taken) {
    MaybeMatcher& matcher = matchers_[static_cast<size_t>(t.slot)];
    // The token of a stuck one may be marked at this moment (StagedStep::mark_stuck).
    if (matcher) take(matcher, *t.token);
  }
  for (const int32_t slot : work.ended) matchers_[static_cast<size_t>(slot)].reset();
  for (const ConstraintWork::Begun& b : work.begun) {
    try {
      begin(b);
    } catch (const std::exception&) {  // out of memory: it gets no token
      matchers_[static_cast<size_t>(b.slot)].reset();
    }
  }
  for (const int32_t slot : work.sampled) {
    if (!fill(slot)) work.stuck.push_back(slot);
  }
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

// A mask of zeros leaves the sampler no token, and the slot no matcher.
bool Constraints::fill(int32_t slot) {
  const std::span mask(host_mask(slot), static_cast<size_t>(tables_.mask_words));
  MaybeMatcher& matcher = matchers_[static_cast<size_t>(slot)];
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
  const auto slot_bytes = static_cast<size_t>(tables_.mask_words) * sizeof(uint32_t);
  for (size_t first = 0, end = 0; first < work.sampled.size(); first = end) {
    const int32_t slot = work.sampled[first];
    while (end < work.sampled.size() &&
           work.sampled[end] == slot + static_cast<int32_t>(end - first))
      ++end;
    backend_.copy_in(tables_.masks + int64_t{slot} * tables_.mask_words, host_mask(slot),
                     (end - first) * slot_bytes);
  }
}

}  // namespace inferd
