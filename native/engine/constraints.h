// Which tokens sequences with a grammar may take: a matcher for each of their slots, and the masks
// that the sampler reads (SlotTables::masks).
//
//   stage   engine's thread              what the step has to do, from its plan: ConstraintWork
//   apply   Backend::after_last_step     takes the tokens of the step before, ends and begins
//                                        matchers, fills the host's masks of the slots to be
//                                        sampled
//   upload  the step, behind apply       the host's masks to the device
//
// A mask depends on the token before it, which is read on the host once the last step is done. By
// then this step's forward pass runs already: two steps stay in flight, and only the sampling of
// this one waits for its masks.
//
// It fails closed: a sequence whose grammar is not known any more, whose tokens do not fit it, or
// that has no token to go on with gets the token kNoToken, with which its request ends.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "core/memory/device_buffer.h"
#include "engine/plan.h"
#include "grammar/matcher.h"

namespace inferd {

// What one step has to do; kept by its StagedStep.
struct ConstraintWork {
  struct Taken {
    int32_t slot, count;
    const int32_t* tokens;  // [count] host, there once its step is done
    int32_t num_drafts;     // at most
    const int32_t* drafts;  // [num_drafts] the same: what the next step computes behind them
  };
  struct Sampled {
    int32_t slot, count;
    const Taken* taken;  // null: no step before drafted for it
  };
  struct Begun {
    int32_t slot, fork_of;
    std::shared_ptr<const Grammar> grammar;  // null: not known
    std::vector<int32_t> outputs;
  };
  std::vector<Taken> taken;
  std::vector<int32_t> ended;
  std::vector<Begun> begun;
  std::vector<Sampled> sampled;    // by slot, ascending
  std::vector<TokenSample> stuck;  // of those, once applied: the ones that can take no token

  bool empty() const { return taken.empty() && ended.empty() && begun.empty() && sampled.empty(); }
};

class Constraints {
 public:
  // Throws Error(kOutOfMemory).
  Constraints(Backend& backend, const SlotTables& tables);

  // `tokens`, `drafts`: where the host finds the tokens of the plan's samples and what it drafts
  // once the step is done.
  void stage(const ParsedPlan& plan, const int32_t* tokens, const int32_t* drafts,
             ConstraintWork& work);
  // Calls come one after the other, in the order of stage. Throws nothing.
  void apply(ConstraintWork& work) noexcept;
  // Enqueues copies of the masks of work.sampled.
  void upload(const ConstraintWork& work) const;

 private:
  using MaybeMatcher = std::optional<Matcher>;  // none: no grammar, or stuck

  static void take(MaybeMatcher& matcher, int32_t token);
  void begin(const ConstraintWork::Begun& begun);
  // The masks of one slot: behind its last token, then behind each of its drafts.
  void fill(const ConstraintWork::Sampled& sampled, std::vector<TokenSample>& stuck);
  bool fill(MaybeMatcher& matcher, int32_t slot, int32_t offset);
  // Of a slot's masks the first word.
  int64_t first_word(int32_t slot) const {
    return int64_t{slot} * tables_.max_sample * tables_.mask_words;
  }

  Backend& backend_;
  const SlotTables& tables_;
  HostBuffer masks_;                    // as SlotTables::masks
  std::vector<MaybeMatcher> matchers_;  // [max_slots]; apply alone uses them
  // [max_slots] the first token of the last sample behind which none can come; apply alone uses it.
  std::vector<int32_t> stuck_at_;
  std::vector<ConstraintWork::Taken> taken_;  // of the last plan staged; stage alone uses them
};

}  // namespace inferd
