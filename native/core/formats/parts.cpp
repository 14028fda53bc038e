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

// Four fields side by side, as four numbers of 16 bits. By shifts of all of them: of a loop over
// fields GCC makes moves of single numbers between vectors, four times slower.
template <int kWidth>
void spread_four(uint64_t fields, int16_t* out) {
  constexpr uint64_t kPair = (uint64_t{1} << 2 * kWidth) - 1, kOne = (uint64_t{1} << kWidth) - 1;
  fields &= kPair << 2 * kWidth | kPair;
  fields = (fields | fields << (32 - 2 * kWidth)) & kPair * 0x100000001u;
  fields = (fields | fields << (16 - kWidth)) & kOne * 0x1000100010001u;
  std::memcpy(out, &fields, 8);
}

// Of `count` fields those that fill words, each of which is read once. @returns how many
template <int kWidth>
int64_t read_words(const Fields& f, int64_t first, int64_t count, int16_t* out) {
  constexpr int kFields = 32 / kWidth;
  if (first % kFields != 0) return 0;
  const int64_t words = count / kFields;
  for (int64_t w = 0; w < words; ++w) {
    const uint64_t bits = word_at(f.words, f.first_word + (first / kFields + w) * f.step);
    for (int i = 0; i < kFields; i += 4)
      spread_four<kWidth>(bits >> (i * kWidth), out + w * kFields + i);
  }
  return words * kFields;
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

uint32_t word_at(const StoredTensor& t, int64_t i) {
  uint32_t word;
  std::memcpy(&word, t.data + 4 * i, 4);
  return word;
}

uint32_t Fields::at(int64_t i) const {
  const int64_t bit = i * width, word = first_word + bit / 32 * step, shift = bit % 32;
  uint64_t bits = word_at(words, word);
  if (shift + width > 32) bits |= uint64_t{word_at(words, word + step)} << 32;
  return static_cast<uint32_t>(bits >> shift) & ((1u << width) - 1u);
}

void Fields::read(int64_t first, int64_t count, int16_t* out) const {
  int64_t done = 0;
  if (width == 4) done = read_words<4>(*this, first, count, out);
  if (width == 8) done = read_words<8>(*this, first, count, out);
  for (; done < count; ++done) out[done] = static_cast<int16_t>(at(first + done));
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
    codes(row, first_col + done, n, piece);
    for (int64_t i = 0; i < n; ++i) {
      if (const int64_t at = group_at(first_col + done + i); at != current) {
        current = at;
        g = group(row, at);
      }
      out[done + i] = g.scale * static_cast<float>(piece[i] - g.zero);
    }
  }
}

void GroupedSource::blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const {
  for (int64_t b = 0; b < count; ++b) {
    const int64_t col = (first + b) * kCodedBlock, n = std::min(kCodedBlock, cols - col);
    CodedBlock& block = out[b] = {};
    if (places_.empty()) codes(row, col, n, block.codes);
    for (int64_t i = 0; i < n && !places_.empty(); ++i)
      codes(row, places_[static_cast<size_t>(col + i)], 1, block.codes + i);
    Group g{};
    for (int64_t half = 0; half < 2; ++half) {
      if (16 * half >= n) break;
      if (const int64_t at = col + 16 * half; half == 0 || at % group_size_ == 0)
        g = group(row, at / group_size_);
      block.scale[half] = g.scale;
      block.min[half] = coded_.zeros == Zeros::kNone ? 0 : -g.scale * static_cast<float>(g.zero);
      if (coded_.zeros != Zeros::kNone) continue;  // the minimum takes the zero in
      for (int64_t i = 16 * half; i < std::min<int64_t>(n, 16 * half + 16); ++i)
        block.codes[i] = static_cast<int16_t>(block.codes[i] - g.zero);
    }
  }
}

}  // namespace inferd
