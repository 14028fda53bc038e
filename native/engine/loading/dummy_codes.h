// The numbers of load_dummy (core/dummy_weight.h) as codes, for formats that no backend quantizes
// to: every block has the scale with which the largest of these numbers has the largest code, so
// that the codes of a slice are those of the whole.
#pragma once
#include <cstdint>
#include <vector>

#include "core/coded_block.h"
#include "core/dummy_weight.h"
#include "core/tensor.h"
#include "core/weight_format.h"

namespace inferd {

// Rows of `cols` columns for formats of is_coded() that checkpoints in safetensors come to: codes
// of 4 and 8 bits.
class DummyCodes final : public CodedRows {
 public:
  DummyCodes(const DummyRows& numbers, CodeType codes, int64_t cols);
  void blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const override;

 private:
  int16_t code_of(float weight) const;

  DummyRows numbers_;
  CodeType codes_;
  int64_t cols_;
  float scale_, min_;
};

// `count` rows of 8-bit floats, for kFloat8Blocks.
class DummyFloat8 {
 public:
  DummyFloat8(const DummyRows& numbers, int64_t count, int64_t cols);
  // [count, cols] of F8, and the table of scales of a weight of `rows`. Valid as long as this.
  Tensor rows();
  Tensor scales(const WeightFormat& format, int64_t rows);

 private:
  int64_t count_, cols_;
  std::vector<uint8_t> codes_;
  std::vector<float> scales_;
};

}  // namespace inferd
