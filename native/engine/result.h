// Writes the result body of a finished step (layout: actors/messages/step.ts). Runs on the engine's
// thread, in wait().
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step.h"

namespace inferd {

// StepResult.errorCode; mirror of engineFault in actors/messages/errors.ts.
enum class StepFault : int32_t { kNone = 0, kStep = 1, kOutOfMemory = 2, kFatal = 3 };

// SampleOutputs in host memory, as many rows as were asked for.
class HostOutputs {
 public:
  // Downloads `rows` rows unless the device's memory can be read in place. Call only when the step
  // has finished.
  void fetch(Backend& backend, const SampleOutputs& device, int64_t rows);
  const SampleOutputs& get() const { return view_; }

 private:
  std::vector<int32_t> memory_;
  SampleOutputs view_{};
};

class ResultWriter {
 public:
  // Prepares the result of `step`, which must have finished with `fault`.
  void prepare(Backend& backend, const StagedStep& step, StepFault fault, int64_t vocab_size);
  int64_t bytes() const { return words_ * 4; }
  // Writes bytes() bytes; `out` is 4-byte aligned or not.
  void write(std::span<std::byte> out) const;

 private:
  const StagedStep* step_ = nullptr;
  StepFault fault_ = StepFault::kNone;
  HostOutputs sampled_, scored_;
  int64_t vocab_size_ = 0;
  int64_t tops_ = 0;
  int64_t words_ = 0;
};

}  // namespace inferd
