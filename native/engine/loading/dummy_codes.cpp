// See dummy_codes.h.
#include "engine/loading/dummy_codes.h"

#include <algorithm>
#include <cmath>

#include "core/float8.h"

namespace inferd {
namespace {

// No number of dummy_weight() is larger, of either sign.
constexpr float kLargest = 131070 * (0.02f / 37837.2f);
constexpr float kLargestFloat8 = 448;

// Of both signs alike.
float largest_code(CodeType codes) {
  if (codes == CodeType::kSint4) return 7;
  return codes == CodeType::kFloat4 ? kTwiceE2m1[7] : 127;
}

}  // namespace

DummyCodes::DummyCodes(const DummyRows& numbers, CodeType codes, int64_t cols)
    : numbers_(numbers), codes_(codes), cols_(cols) {
  const bool from_zero = codes == CodeType::kUint4;  // to 15
  scale_ = from_zero ? 2 * kLargest / 15 : kLargest / largest_code(codes);
  min_ = from_zero ? -kLargest : 0;
}

int16_t DummyCodes::code_of(float weight) const {
  const float code = (weight - min_) / scale_;
  if (codes_ != CodeType::kFloat4) return static_cast<int16_t>(std::lround(code));
  int16_t nearest = 0;
  for (const int8_t one : kTwiceE2m1)
    if (std::fabs(code - one) < std::fabs(code - nearest)) nearest = one;
  return nearest;
}

void DummyCodes::blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const {
  for (int64_t b = first; b < first + count; ++b, ++out) {
    *out = {};
    out->scale[0] = out->scale[1] = scale_;
    out->min[0] = out->min[1] = min_;
    const int64_t col = b * kCodedBlock, n = std::min(kCodedBlock, cols_ - col);
    for (int64_t k = 0; k < n; ++k)
      out->codes[k] = code_of(dummy_weight(numbers_.counter(row, col + k)));
  }
}

DummyFloat8::DummyFloat8(const DummyRows& numbers, int64_t count, int64_t cols)
    : count_(count), cols_(cols), codes_(static_cast<size_t>(count * cols)) {
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const float scaled = dummy_weight(numbers.counter(r, c)) / kLargest * kLargestFloat8;
      codes_[static_cast<size_t>(r * cols + c)] = f32_to_e4m3(scaled);
    }
  }
}

Tensor DummyFloat8::rows() { return Tensor::matrix(codes_.data(), DType::kF8, count_, cols_); }

Tensor DummyFloat8::scales(const WeightFormat& format, int64_t rows) {
  const int64_t down = (rows + format.block_rows - 1) / format.block_rows;
  const int64_t across = (cols_ + format.block_cols - 1) / format.block_cols;
  scales_.assign(static_cast<size_t>(down * across), kLargest / kLargestFloat8);
  return Tensor::matrix(scales_.data(), DType::kF32, down, across);
}

}  // namespace inferd
