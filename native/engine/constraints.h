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
#include "core/device_buffer.h"
#include "engine/plan.h"
#include "grammar/matcher.h"

namespace inferd {

constexpr int32_t kNoToken = -1;

// What one step has to do; kept by its StagedStep.
struct ConstraintWork {
  struct Taken {
    int32_t slot;
    const int32_t* token;  // host, there once its step is done
  };
  struct Begun {
    int32_t slot, fork_of;
    std::shared_ptr<const Grammar> grammar;  // null: not known
    std::vector<int32_t> outputs;
  };
  std::vector<Taken> taken;
  std::vector<int32_t> ended;
  std::vector<Begun> begun;
  std::vector<int32_t> sampled;  // slots, ascending
  std::vector<int32_t> stuck;    // of those, once applied: the ones that can take no token

  bool empty() const { return taken.empty() && ended.empty() && begun.empty() && sampled.empty(); }
};

class Constraints {
 public:
  // Throws Error(kOutOfMemory).
  Constraints(Backend& backend, const SlotTables& tables);

  // `tokens`: where the host finds the tokens of the plan's samples once the step is done.
  void stage(const ParsedPlan& plan, const int32_t* tokens, ConstraintWork& work);
  // Calls come one after the other, in the order of stage. Throws nothing.
  void apply(ConstraintWork& work) noexcept;
  // Enqueues copies of the masks of work.sampled.
  void upload(const ConstraintWork& work) const;

 private:
  using MaybeMatcher = std::optional<Matcher>;  // none: no grammar, or stuck

  static void take(MaybeMatcher& matcher, int32_t token);
  void begin(const ConstraintWork::Begun& begun);
  bool fill(int32_t slot);
  uint32_t* host_mask(int32_t slot) const {
    return masks_.as<uint32_t>() + int64_t{slot} * tables_.mask_words;
  }

  Backend& backend_;
  const SlotTables& tables_;
  HostBuffer masks_;                          // [max_slots, mask_words]
  std::vector<MaybeMatcher> matchers_;        // [max_slots]; apply alone uses them
  std::vector<ConstraintWork::Taken> taken_;  // of the last plan staged; stage alone uses them
};

}  // namespace inferd
