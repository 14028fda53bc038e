// Writes the result body of a finished step (layout: actors/messages/step.ts). Runs on the engine's
// thread, in wait().
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_runner.h"

namespace inferd {

// StepResult.errorCode; mirror of engineFault in actors/messages/errors.ts.
enum class StepFault : int32_t { kNone = 0, kStep = 1, kOutOfMemory = 2, kFatal = 3 };

class ResultWriter {
 public:
  // Prepares the result of `step`, which must have finished with `fault`; `exec_us` as of
  // Backend::step_device_us.
  void prepare(const StagedStep& step, StepFault fault, int64_t vocab_size, int64_t exec_us);
  int64_t bytes() const { return words_ * 4; }
  // Writes bytes() bytes; `out` is 4-byte aligned or not.
  void write(std::span<std::byte> out) const;

 private:
  struct Token {
    int32_t slot;
    size_t at;        // in the step's outputs
    int32_t drafted;  // of the first token of a sample: drafts that were computed with it
  };

  const StagedStep* step_ = nullptr;
  std::vector<Token> tokens_;  // sampled
  StepFault fault_ = StepFault::kNone;
  int64_t vocab_size_ = 0;
  int64_t exec_us_ = 0;
  int64_t queue_us_ = 0;
  int64_t tops_ = 0;
  int64_t pooled_ = 0;  // sums that are complete
  int64_t words_ = 0;
};

}  // namespace inferd
