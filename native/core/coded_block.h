// Weights as small codes, in the form that all formats of checkpoints come down to before a backend
// lays them out: 32 weights of one row, in two halves that may have scales of their own.
//
//   w[i] = scale[i / 16] * codes[i] + min[i / 16]
//
// Symmetric formats have codes of both signs and minima of 0. Products in float of this form are
// the very numbers that the formats' own definitions give.
#pragma once
#include <cstdint>
#include <span>

namespace inferd {

constexpr int64_t kCodedBlock = 32;

struct CodedBlock {
  int16_t codes[kCodedBlock];
  float scale[2];
  float min[2];

  float weight(int64_t i) const {
    return scale[i / 16] * static_cast<float>(codes[i]) + min[i / 16];
  }
};

// Blocks [first, first + count) of rows [row, row + rows).
struct BlockRange {
  int64_t row, rows, first, count;
};

// Rows of a weight, or columns of them, that a loader hands to a backend. All calls may come from
// several threads at once.
class CodedRows {
 public:
  virtual ~CodedRows() = default;
  // Blocks [first, first + count) of a row; the last one of a row is filled up with zeros.
  virtual void blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const = 0;
  // The same of several rows, one after the other.
  virtual void rows_of_blocks(const BlockRange& of, CodedBlock* out) const {
    for (int64_t r = 0; r < of.rows; ++r)
      blocks(of.row + r, of.first, of.count, out + r * of.count);
  }
  // Rows that are best read together, since they share lines of memory.
  virtual int64_t rows_at_once() const { return 1; }
  // Where blocks do not hold columns in their order: the column at each place of all rows. It must
  // be the input's too. Empty: they are in order. Lives as long as this.
  virtual std::span<const int32_t> order() const { return {}; }
};

}  // namespace inferd
