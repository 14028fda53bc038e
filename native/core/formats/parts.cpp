// See parts.h.
#include "core/formats/parts.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/checkpoint/json.h"
#include "core/error.h"
#include "core/float8.h"
#include "core/half.h"

namespace inferd {
namespace {

constexpr int64_t kPiece = 256;

// `dtype` is one of the words of `list`.
bool among(std::string_view list, std::string_view dtype) {
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(' ', at), list.size());
    if (list.substr(at, end - at) == dtype) return true;
    at = end + 1;
  }
  return false;
}

// What is taken apart at a time: bytes of a run, and runs, whose words are put together first.
constexpr int64_t kBytes = 16, kRuns = 64;

// The fields of 16 bytes as numbers of 16 bits. Of a loop over two numbers a byte GCC makes
// vectors, of other forms moves of single numbers, four times slower.
template <int kWidth>
void spread(const uint8_t* __restrict bytes, int16_t* __restrict out) {
  for (int i = 0; i < kBytes; ++i) {
    if constexpr (kWidth == 4) {
      out[2 * i] = static_cast<int16_t>(bytes[i] & 15);
      out[2 * i + 1] = static_cast<int16_t>(bytes[i] >> 4);
    } else {
      out[i] = static_cast<int16_t>(bytes[i]);
    }
  }
}

// Of `count` fields those that fill 16 bytes, each of which is read once. @returns how many
template <int kWidth>
int64_t read_bytes(const Fields& f, int64_t first, int64_t count, int16_t* out, int64_t runs,
                   int64_t next) {
  constexpr int64_t kWords = kBytes / 4, kFields = kBytes * 8 / kWidth;
  if (first * kWidth % 32 != 0) return 0;
  int64_t done = 0;
  for (; done + kFields <= count; done += kFields) {
    const int64_t at = f.first_word + (first + done) * kWidth / 32 * f.step;
    if (f.step == 1 && runs == 1) {
      spread<kWidth>(reinterpret_cast<const uint8_t*>(f.words.data + 4 * at), out + done);
      continue;
    }
    for (int64_t run = 0; run < runs; run += kRuns) {
      const int64_t n = std::min(kRuns, runs - run);
      uint32_t words[kRuns][kWords];
      for (int64_t w = 0; w < kWords; ++w)
        for (int64_t r = 0; r < n; ++r) words[r][w] = word_at(f.words, at + run + r + w * f.step);
      for (int64_t r = 0; r < n; ++r) {
        // A byte may look at any other type.
        spread<kWidth>(reinterpret_cast<const uint8_t*>(words[r]), out + (run + r) * next + done);
      }
    }
  }
  return done;
}

}  // namespace

void WantedWeight::fail(const std::string& what) const {
  throw Error(ErrorCode::kBadModel,
              format("The weight %s cannot be read: %s.", in_quotes(module).c_str(), what.c_str()));
}

const StoredTensor& WantedWeight::need(const char* suffix, const char* dtypes) const {
  const StoredTensor* t = find(suffix);
  if (t == nullptr) fail(format("the tensor %s%s is missing", module.c_str(), suffix));
  if (!among(dtypes, t->dtype_name)) {
    fail(format("%s%s has the dtype %s, and it must be one of %s", module.c_str(), suffix,
                t->dtype_name.c_str(), dtypes));
  }
  return *t;
}

const StoredTensor& WantedWeight::need(const char* suffix, const char* dtypes,
                                       const std::vector<int64_t>& shape) const {
  const StoredTensor& t = need(suffix, dtypes);
  if (t.shape != shape) {
    fail(format("%s%s has the shape %s, and %s is wanted", module.c_str(), suffix,
                shape_text(t.shape).c_str(), shape_text(shape).c_str()));
  }
  return t;
}

int64_t WantedWeight::group_size(int64_t groups) const {
  if (groups < 1 || cols % groups != 0) {
    fail(format("its %lld columns are not %lld groups of equal size", static_cast<long long>(cols),
                static_cast<long long>(groups)));
  }
  return cols / groups;
}

float number_at(const StoredTensor& t, int64_t i) {
  if (t.dtype == DType::kF8) return e4m3_to_f32(byte_at(t, i));
  if (t.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, t.data + 4 * i, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, t.data + 2 * i, 2);
  return t.dtype == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
}

uint32_t Fields::at(int64_t i) const {
  const int64_t bit = i * width, word = first_word + bit / 32 * step, shift = bit % 32;
  uint64_t bits = word_at(words, word);
  if (shift + width > 32) bits |= uint64_t{word_at(words, word + step)} << 32;
  return static_cast<uint32_t>(bits >> shift) & ((1u << width) - 1u);
}

void Fields::read(int64_t first, int64_t count, int16_t* out, int64_t runs, int64_t next) const {
  int64_t done = 0;
  if (width == 4) done = read_bytes<4>(*this, first, count, out, runs, next);
  if (width == 8) done = read_bytes<8>(*this, first, count, out, runs, next);
  for (; done < count; ++done) {
    for (int64_t run = 0; run < runs; ++run) {
      const Fields one{words, first_word + run, step, width};
      out[run * next + done] = static_cast<int16_t>(one.at(first + done));
    }
  }
}

bool all_fields_same(const StoredTensor& words, int64_t width) {
  if (32 % width != 0) return false;
  const uint32_t field = word_at(words, 0) & ((1u << width) - 1u);
  uint32_t same = 0;
  for (int64_t shift = 0; shift < 32; shift += width) same |= field << shift;
  for (int64_t i = 0; i < words.bytes / 4; ++i)
    if (word_at(words, i) != same) return false;
  return true;
}

void GroupedSource::take_order(const WantedWeight& wanted, const StoredTensor& group_of) {
  // Says nothing: a file that was made without an order may say -1 for every column, or 0.
  const auto every = [&](int32_t group) {
    for (int64_t k = 0; k < cols; ++k)
      if (static_cast<int32_t>(word_at(group_of, k)) != group) return false;
    return true;
  };
  if (every(-1) || every(0)) return;
  std::vector<int32_t> order(static_cast<size_t>(cols));
  bool in_place = true;
  for (int64_t k = 0; k < cols; ++k) {
    const auto group = static_cast<int32_t>(word_at(group_of, k));
    if (group < 0 || group >= groups_)
      wanted.fail(format("column %lld is in group %d of %lld", static_cast<long long>(k), group,
                         static_cast<long long>(groups_)));
    order[static_cast<size_t>(k)] = group;
    in_place = in_place && group == k / group_size_;
  }
  if (in_place) return;
  order_ = std::move(order);
  sort_columns();
}

// Stable, so that neighbours of a group stay neighbours.
void GroupedSource::sort_columns() {
  std::vector<int32_t> next(static_cast<size_t>(groups_)), sorted(order_.size());
  for (int64_t g = 0; g < groups_; ++g)
    next[static_cast<size_t>(g)] = static_cast<int32_t>(g * group_size_);
  for (size_t col = 0; col < order_.size(); ++col) {
    int32_t& place = next[static_cast<size_t>(order_[col])];
    if (place == (order_[col] + 1) * group_size_) return;  // more columns than a group has
    sorted[static_cast<size_t>(place++)] = static_cast<int32_t>(col);
  }
  places_ = std::move(sorted);
}

bool GroupedSource::every_zero_is(int32_t zero) const {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t g = 0; g < groups_; ++g)
      if (group(row, g).zero != zero) return false;
  return true;
}

void GroupedSource::choose_coded(int64_t bits) {
  if (order_.size() != places_.size() || group_size_ % 16 != 0) return;
  const int32_t middle = group(0, 0).zero;
  const bool same = one_zero() || every_zero_is(middle);
  const bool halves = group_size_ % kCodedBlock != 0 && groups_ > 1;
  // Codes less the zero must be those of the format.
  const bool symmetric = same && middle >= 0 && middle <= (bits <= 4 ? 8 : 128);
  const bool four = bits <= 4 && !halves;
  if (four)
    coded_ = symmetric && (1 << bits) - 1 - middle <= 7 ? kCodedInt4 : kCodedInt4Minima;
  else if (symmetric && (1 << bits) - 1 - middle <= 127)
    coded_ = halves ? kCodedInt8Halves : kCodedInt8;
  else if (bits <= 7)
    coded_ = kCodedInt8Halves;
  if (coded_.scaled && coded_.block_cols == kCodedBlock) coded_.block_cols = coded_run(group_size_);
}

void GroupedSource::floats(int64_t row, int64_t first_col, int64_t count, float* out) const {
  int16_t piece[kPiece];
  int64_t current = -1;
  Group g{};
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t n = std::min(kPiece, count - done);
    codes({row, 1, first_col + done, n, piece, 0});
    for (int64_t i = 0; i < n; ++i) {
      if (const int64_t at = group_at(first_col + done + i); at != current) {
        current = at;
        g = group(row, at);
      }
      out[done + i] = g.scale * static_cast<float>(piece[i] - g.zero);
    }
  }
}

// All codes first, and then the scales: what was written in small pieces would be waited for if it
// were read in larger ones right away.
void GroupedSource::rows_of_blocks(const BlockRange& of, CodedBlock* out) const {
  const int64_t next = of.count * static_cast<int64_t>(sizeof(CodedBlock) / sizeof(int16_t));
  for (int64_t b = 0; b < of.count; ++b) {
    const int64_t col = (of.first + b) * kCodedBlock, n = std::min(kCodedBlock, cols - col);
    int16_t* to = out[b].codes;
    if (places_.empty()) codes({of.row, of.rows, col, n, to, next});
    for (int64_t i = 0; i < n && !places_.empty(); ++i)
      codes({of.row, of.rows, places_[static_cast<size_t>(col + i)], 1, to + i, next});
  }
  for (int64_t r = 0; r < of.rows; ++r)
    scale_blocks(of.row + r, of.first, of.count, out + r * of.count);
}

// Blocks that have their codes, as the file has these.
void GroupedSource::scale_blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const {
  Group g{};
  int64_t group_end = 0;  // of the columns that `g` is of
  for (int64_t b = 0; b < count; ++b) {
    CodedBlock& block = out[b];
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t col = (first + b) * kCodedBlock + 16 * half;
      int16_t* const of_half = block.codes + 16 * half;
      if (col >= cols) {
        block.scale[half] = block.min[half] = 0;
        std::fill_n(of_half, 16, int16_t{0});
        continue;
      }
      if (col >= group_end) {
        g = group(row, col / group_size_);
        group_end = (col / group_size_ + 1) * group_size_;
      }
      block.scale[half] = g.scale;
      block.min[half] = coded_.zeros == Zeros::kNone ? 0 : -g.scale * static_cast<float>(g.zero);
      if (coded_.zeros != Zeros::kNone) continue;  // the minimum takes the zero in
      for (int64_t i = 0; i < 16; ++i) of_half[i] = static_cast<int16_t>(of_half[i] - g.zero);
    }
  }
}

}  // namespace inferd
