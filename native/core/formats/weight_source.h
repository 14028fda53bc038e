// A weight matrix as the tensors of a checkpoint hold it, whatever the format: rows of numbers. The
// loader reads weights through this; a format is a file in this folder and a line in
// weight_source.cpp. Which one a weight has is told by the tensors that are there, never by names
// of repositories.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "core/checkpoint/checkpoint.h"
#include "core/coded_block.h"
#include "core/formats/stored_quantization.h"
#include "core/weight_format.h"

namespace inferd {

class WeightSource : public CodedRows {
 public:
  WeightSource(int64_t rows, int64_t cols) : rows(rows), cols(cols) {}

  const int64_t rows, cols;
  // Columns [first_col, first_col + count) of a row. Exact but for one rounding to float.
  virtual void floats(int64_t row, int64_t first_col, int64_t count, float* out) const = 0;
  // The format in which backends may keep it without a rounding that counts; one without scales:
  // it is widened.
  virtual WeightFormat coded() const { return kFormatF32; }
  // A tighter one of the same weights, for backends that have it.
  virtual WeightFormat compact() const { return coded(); }
  // The format in which the file holds it, for devices that multiply by its very bytes: one of
  // is_scaled_rows(), which codes() and scale() then tell of. Without scales: there is none.
  virtual WeightFormat as_stored() const { return kFormatF32; }
  // [rows, cols] codes of as_stored().
  virtual const StoredTensor* codes() const { return nullptr; }
  // Of the block that a weight belongs to.
  virtual float scale(int64_t row, int64_t col) const {
    (void)row, (void)col;
    return 1;
  }
  // Only where coded() has scales.
  void blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const override;
  // The file has rows or blocks with scales of their own, which are widened where coded() has none.
  virtual bool quantized() const { return plain() == nullptr; }
  // Where rows lie as they are, one after the other; else null.
  virtual const StoredTensor* plain() const { return nullptr; }
  // Bytes of the file that a row takes, about.
  virtual int64_t row_bytes() const = 0;
};

using WeightSourcePtr = std::unique_ptr<WeightSource>;

// Of the weight that a checkpoint stores as `name`, such as "model.layers.0.mlp.up_proj.weight", or
// in tensors beside that name; of `shape`, with one or two dimensions. A vector is one row. Null
// when there is none. Throws Error(kBadModel) where tensors do not fit the shape or each other.
WeightSourcePtr open_weight(const Checkpoint& checkpoint, const std::string& name,
                            const std::vector<int64_t>& shape,
                            const StoredQuantization& quantization);
// `source` with its rows, or of a vector its columns, taken from pairs to halves: of each
// `head_rows` those from `first` on (PairedRows of models/config/config.h).
WeightSourcePtr in_halves(WeightSourcePtr source, int64_t head_rows, int64_t first = 0);

}  // namespace inferd
