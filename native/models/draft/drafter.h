// A network that drafts tokens ahead of the model, the target: a small model, or a head on hidden
// states of the target. It keeps keys and values of its own in the target's blocks, so that
// whatever moves blocks (prefix cache, copies, swaps) moves them too. All tokens of a step go
// through it behind the target (`follow`); then it runs one token a row for each further draft.
//
// What it drafts changes the speed of an answer and nothing else, so nothing here has to be right
// but the places that are written.
//
// Thread: made and loaded on the engine's thread; follow, pick, advance and logits run inside a
// step, on the backend's stream. Of several ranks each has all of it.
#pragma once
#include <cstdint>
#include <vector>

#include "models/model.h"

namespace inferd {

// What it reads of the target's tokens besides their ids.
enum class TargetStates {
  kNone,
  kLast,  // Model::forward's states, behind the final norm
  kTaps,  // Model::taps
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Of its checkpoint, for whoever loads parts().
  virtual const ModelConfig& config() const = 0;
  virtual const std::vector<KvSpec>& kv_specs() const = 0;
  virtual const std::vector<LayerShape>& shapes() const = 0;
  // As of Model.
  virtual void describe(DType dtype, FormatChoice format_of) = 0;
  virtual const std::vector<WeightPart>& parts() const = 0;
  virtual const std::vector<WeightFormat>& linear_formats() const = 0;
  virtual void finish_loading() = 0;
  // `max_rows`: sequences that draft in one step.
  virtual void carve(Arena& arena, int64_t max_tokens, int64_t max_rows,
                     int64_t max_logit_rows) = 0;

  virtual TargetStates reads() const = 0;
  // Places that its tokens stand ahead of the target's: a head on hidden states has, at the place
  // of a state, the token behind it.
  virtual int32_t lag() const = 0;

  // All tokens of a step, with their ids moved by lag(); `states` [tokens, ..] as it reads them.
  virtual void follow(const StepContext& step, const Tensor& states) = 0;
  // With a lag: the rows that logits() and advance() go on with are these of follow().
  virtual void pick(const int32_t* rows, int32_t count) = 0;
  // One token a row: the draft made last.
  virtual void advance(const StepContext& step) = 0;
  // Of rows first, first + 1, .. of the last advance() or pick(); at most max_logit_rows.
  virtual Tensor logits(int32_t first, int32_t count) = 0;
  // [logits().cols()] device: the target's ids that the columns of logits() stand for; null: 0, 1,
  // ..
  virtual const int32_t* target_ids() const { return nullptr; }
};

}  // namespace inferd
