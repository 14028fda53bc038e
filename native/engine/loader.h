// Brings a model's tensors from a checkpoint, or from a random number generator, to the backend, in
// pieces of bounded size.
//
// Thread: the engine's. First every tensor's presence, shape and dtype is checked, so that a wrong
// checkpoint fails at once and not after minutes. Pieces keep each call short: the caller reports
// progress and can stop in between.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "engine/options.h"
#include "models/layers.h"

namespace inferd {

class WeightLoader {
 public:
  // Loads `parts` (which must outlive this) from `checkpoint`; throws Error(kBadModel) naming what
  // is missing or of a wrong shape.
  WeightLoader(const std::vector<WeightPart>& parts, std::unique_ptr<Checkpoint> checkpoint);
  // Fills `parts` with small random numbers of `dtype`, the same on every run; norms with 1.
  WeightLoader(const std::vector<WeightPart>& parts, DType dtype);

  // Loads about `max_bytes` more; of any weight at least 64 rows, or those that are left.
  void load(int64_t max_bytes);
  LoadProgress progress() const { return {done_bytes_, total_bytes_, next_part_ == parts_.size()}; }

 private:
  void check();
  int64_t row_bytes(size_t part) const;
  Tensor stored_rows(size_t part, int64_t first, int64_t count);
  uint64_t dummy_seed(size_t part) const;
  Tensor dummy_rows(size_t part, int64_t first, int64_t count);

  const std::vector<WeightPart>& parts_;
  std::unique_ptr<Checkpoint> checkpoint_;    // null: random numbers
  std::vector<const StoredTensor*> sources_;  // [parts], with a checkpoint
  DType dummy_dtype_ = DType::kBF16;
  std::vector<std::byte> scratch_;
  size_t next_part_ = 0;
  int64_t next_row_ = 0;
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace inferd
