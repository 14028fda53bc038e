// Brings a model's tensors from a checkpoint, or from a random number generator, to the backend, in
// pieces of bounded size.
//
// Thread: the engine's. First every tensor's presence, shape and dtype is checked, so that a wrong
// checkpoint fails at once and not after minutes. Pieces keep each call short: the caller reports
// progress and can stop in between. This is the one place that knows under which names a checkpoint
// stores what models call otherwise, and that reads slices of its tensors.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/name_map.h"
#include "core/formats/stacked_experts.h"
#include "core/formats/weight_source.h"
#include "models/blocks/layers.h"

namespace inferd {

// The tensor that models call `name`; null when there is none.
const StoredTensor* find_tensor(const Checkpoint& checkpoint, const NameMap& names,
                                const std::string& name);

// The weight, or vector, that models call `name`, of `shape`, as `checkpoint` stores it; null when
// there is none. `config` tells of the names and ways of the checkpoint.
WeightSourcePtr find_weight(const Checkpoint& checkpoint, const ModelConfig& config,
                            const std::string& name, const std::vector<int64_t>& shape);
// What a backend keeps.
struct KeptFormats {
  std::function<bool(const WeightFormat& format)> keeps;
  WeightFormat plain;           // of weights that are stored without codes
  WeightFormat wide;            // of those that are widened
  int64_t ordered_rows = 0;     // BackendInfo::ordered_rows
  bool float4_linears = false;  // BackendInfo::float4_linears
};
// In which format a part of a stored weight is best kept: as it is stored, in the tightest coded
// one, or widened, as where there is none or the part cuts blocks.
WeightFormat kept_format_of(const Checkpoint& checkpoint, const ModelConfig& config,
                            const TensorSlice& slice, const KeptFormats& kept);

// The same of a checkpoint that is only thought of, as `config` says how it would be quantized.
WeightFormat dummy_format_of(const ModelConfig& config, const TensorSlice& slice,
                             const KeptFormats& kept);

struct LoadProgress {
  int64_t done_bytes;
  int64_t total_bytes;
  bool done;
};

class WeightLoader {
 public:
  // Loads `parts` (which must outlive this) from `checkpoint`, of whose names and ways `config`
  // tells; throws Error(kBadModel) naming what is missing or of a wrong shape.
  WeightLoader(const std::vector<WeightPart>& parts, std::unique_ptr<Checkpoint> checkpoint,
               const ModelConfig& config = {});
  // Fills `parts` with small random numbers of `dtype`, the same on every run, and in a slice the
  // same as in the whole tensor; norms with 1.
  WeightLoader(const std::vector<WeightPart>& parts, DType dtype);

  // Loads about `max_bytes` more; of any weight at least 64 rows, or those that are left.
  void load(int64_t max_bytes);
  LoadProgress progress() const { return {done_bytes_, total_bytes_, next_part_ == parts_.size()}; }

 private:
  void check(const ModelConfig& config);
  void add_up();
  int64_t row_bytes(size_t part) const;
  // Rows [first, first + count) of a part.
  Tensor stored_rows(size_t part, int64_t first, int64_t count);
  Tensor widened_rows(size_t part, int64_t first, int64_t count);
  // `stored`: rows of the part's weight, one after the other.
  Tensor rows_of(const StoredTensor& stored, size_t part, int64_t first, int64_t count);
  // The table of a part that is kept as it is stored.
  void store_scales(size_t part);
  DummyRows dummy_numbers(size_t part, int64_t first) const;
  // Hands rows [first, first + count) of dummy numbers to the backend.
  void store_dummy(size_t part, int64_t first, int64_t count);
  Tensor dummy_rows(size_t part, int64_t first, int64_t count);

  const std::vector<WeightPart>& parts_;
  std::unique_ptr<Checkpoint> checkpoint_;  // null: random numbers
  std::vector<WeightSourcePtr> sources_;    // [parts], with a checkpoint
  DType dummy_dtype_ = DType::kBF16;
  std::vector<std::byte> scratch_;
  size_t next_part_ = 0;
  int64_t next_row_ = 0;
  int64_t done_bytes_ = 0;
  int64_t dropped_bytes_ = 0;  // of done_bytes_, whose pages have been given back
  int64_t total_bytes_ = 0;
};

}  // namespace inferd
