// What the formats of this folder share: the tensors that make up a weight, found and checked.
#pragma once
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/formats/stored_quantization.h"
#include "core/formats/weight_source.h"

namespace inferd {

// Types in which files keep scales of groups.
inline constexpr const char* kScaleTypes = "F16 BF16 F32";

// A weight that is asked for.
struct WantedWeight {
  const Checkpoint& checkpoint;
  std::string module;  // its name less ".weight"
  int64_t rows, cols;
  const StoredQuantization& quantization;

  // Null when it is not there.
  const StoredTensor* find(const char* suffix) const { return checkpoint.find(module + suffix); }
  // @throws Error(kBadModel) when it is not there, or is none of the types ("F16 BF16").
  const StoredTensor& need(const char* suffix, const char* dtypes) const;
  // The same with a shape.
  const StoredTensor& need(const char* suffix, const char* dtypes,
                           const std::vector<int64_t>& shape) const;
  [[noreturn]] void fail(const std::string& what) const;
  // Columns that share a scale when a row has `groups` scales. @throws Error(kBadModel)
  int64_t group_size(int64_t groups) const;
};

// Elements, which may lie at any address. Of F32, F16, BF16 and F8_E4M3.
float number_at(const StoredTensor& t, int64_t i);
inline uint32_t word_at(const StoredTensor& t, int64_t i) {  // of 32 bits
  uint32_t word;
  std::memcpy(&word, t.data + 4 * i, 4);
  return word;
}
inline uint8_t byte_at(const StoredTensor& t, int64_t i) { return static_cast<uint8_t>(t.data[i]); }

// A run of words `step` apart, as bits from the lowest of its first word on, that hold fields of
// `width` bits, at most 16.
struct Fields {
  const StoredTensor& words;
  int64_t first_word, step, width;

  uint32_t at(int64_t i) const;
  // Fields [first, first + count) of `runs` runs, of which each begins a word after the one before:
  // out[run * next + i].
  void read(int64_t first, int64_t count, int16_t* out, int64_t runs = 1, int64_t next = 0) const;
};
// Whether all fields of all words are the same; false too where fields cross words.
bool all_fields_same(const StoredTensor& words, int64_t width);

// A matrix of codes with a scale and a zero for each group of columns: w = scale (code - zero).
class GroupedSource : public WeightSource {
 public:
  struct Group {
    float scale;
    int32_t zero;
  };

  // `groups`: scales of a row.
  GroupedSource(const WantedWeight& wanted, int64_t groups)
      : WeightSource(wanted.rows, wanted.cols), groups_(groups) {
    group_size_ = wanted.group_size(groups);
  }

  void floats(int64_t row, int64_t first_col, int64_t count, float* out) const final;
  void blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const final {
    rows_of_blocks({row, 1, first, count}, out);
  }
  void rows_of_blocks(const BlockRange& of, CodedBlock* out) const final;
  WeightFormat coded() const final { return coded_; }
  std::span<const int32_t> order() const final { return places_; }

 protected:
  // Columns [col, col + cols) of rows [row, row + rows): code c of row r at out[r * next + c].
  struct Codes {
    int64_t row, rows, col, cols;
    int16_t* out;
    int64_t next;
  };
  virtual void codes(const Codes& of) const = 0;
  virtual Group group(int64_t row, int64_t group) const = 0;
  // True only where all groups of all rows have the same zero; where it is false they may have, and
  // all of them are looked at.
  virtual bool one_zero() const { return false; }
  // `group_of` [cols] names the group of each column, where that is not its place.
  void take_order(const WantedWeight& wanted, const StoredTensor& group_of);
  // Once all of it can be read: finds the format for codes of `bits`, which take in their zeros
  // when all of these are the same. Columns that are out of order are sorted by their groups, if
  // these are of equal size; else there is none.
  void choose_coded(int64_t bits);
  int64_t groups() const { return groups_; }

 private:
  void sort_columns();
  void scale_blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const;
  bool every_zero_is(int32_t zero) const;
  int64_t group_at(int64_t col) const {
    return order_.empty() ? col / group_size_ : order_[static_cast<size_t>(col)];
  }

  WeightFormat coded_ = kFormatF32;
  int64_t groups_, group_size_;
  std::vector<int32_t> order_;   // the group of each column; empty: in place
  std::vector<int32_t> places_;  // the column at each place of blocks(); empty: in place
};

// All rows of a tensor of numbers or blocks; `cols` is the last size of its shape.
WeightSourcePtr open_rows(const StoredTensor& t, int64_t rows, int64_t cols);

// A format: null when `wanted` is not in it.
using OpenWeight = WeightSourcePtr (*)(const WantedWeight& wanted);
WeightSourcePtr open_plain(const WantedWeight& wanted);
WeightSourcePtr open_blocks(const WantedWeight& wanted);
WeightSourcePtr open_float8(const WantedWeight& wanted);
WeightSourcePtr open_int8(const WantedWeight& wanted);
WeightSourcePtr open_gptq(const WantedWeight& wanted);
WeightSourcePtr open_awq(const WantedWeight& wanted);
WeightSourcePtr open_packed(const WantedWeight& wanted);
WeightSourcePtr open_float4(const WantedWeight& wanted);
WeightSourcePtr open_latent_parts(const WantedWeight& wanted);

}  // namespace inferd
