// GPTQ and AWQ: integer codes in 32-bit words, with scales and zeros for groups of inputs. b bits a
// code, G groups, K inputs, N outputs.
//
//   GPTQ  qweight [K b / 32, N]: words run down the inputs     qzeros [G, N b / 32]: along the
//   outputs
//         scales [G, N]; g_idx [K]: the group of each input, where that is not its place
//         Zeros are stored as one less, but for version 2.
//   AWQ   qweight [K, N / 8], qzeros [G, N / 8]: words run along the outputs, in the order
//         0 2 4 6 1 3 5 7; scales [G, N]
//
//   w[n][k] = scale (code - zero)
#include <memory>

#include "core/error.h"
#include "core/formats/parts.h"

namespace inferd {
namespace {

// So many rows have two lines of GPTQ's words to themselves, and of AWQ's a quarter of one.
constexpr int64_t kRowsAtOnce = 32;

class GptqSource final : public GroupedSource {
 public:
  GptqSource(const WantedWeight& w, int64_t groups, int64_t bits)
      : GroupedSource(w, groups),
        bits_(bits),
        words_(w.need(".qweight", "I32")),
        scales_(w.need(".scales", kScaleTypes, {groups, w.rows})),
        zeros_(w.find(".qzeros")),
        less_one_(w.quantization.zeros_less_one ? 1 : 0) {
    if (zeros_ != nullptr) w.need(".qzeros", "I32", {groups, w.rows * bits / 32});
    if (w.find(".g_idx") != nullptr)
      take_order(w, w.need(".g_idx", "I32", {w.cols}));
    else
      check_groups(w, groups);
    choose_coded(bits);
  }
  int64_t row_bytes() const override { return cols * bits_ / 8; }
  int64_t rows_at_once() const override { return kRowsAtOnce; }

 protected:
  // Groups of another size than the columns suggest, of which the last is shorter.
  static void check_groups(const WantedWeight& w, int64_t groups) {
    const int64_t size = w.quantization.group_size;
    if (size == 0 || w.cols % size == 0 || (w.cols + size - 1) / size != groups) return;
    w.fail(format("its %lld columns are not whole groups of %lld, and it has no g_idx",
                  static_cast<long long>(w.cols), static_cast<long long>(size)));
  }
  void codes(const Codes& of) const override {
    Fields{words_, of.row, rows, bits_}.read(of.col, of.cols, of.out, of.rows, of.next);
  }
  Group group(int64_t row, int64_t group) const override {
    const float scale = number_at(scales_, group * rows + row);
    if (zeros_ == nullptr) return {scale, 1 << (bits_ - 1)};
    const uint32_t zero = Fields{*zeros_, group * (rows * bits_ / 32), 1, bits_}.at(row);
    return {scale, static_cast<int32_t>(zero) + less_one_};
  }
  bool one_zero() const override { return zeros_ == nullptr || all_fields_same(*zeros_, bits_); }

 private:
  int64_t bits_;
  const StoredTensor& words_;
  const StoredTensor& scales_;
  const StoredTensor* zeros_;
  int32_t less_one_;
};

constexpr int64_t kAwqPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};

class AwqSource final : public GroupedSource {
 public:
  AwqSource(const WantedWeight& w, int64_t groups)
      : GroupedSource(w, groups),
        words_(w.need(".qweight", "I32", {w.cols, w.rows / 8})),
        scales_(w.need(".scales", kScaleTypes, {groups, w.rows})),
        zeros_(w.find(".qzeros")) {
    if (zeros_ != nullptr) w.need(".qzeros", "I32", {groups, w.rows / 8});
    choose_coded(4);
  }
  int64_t row_bytes() const override { return cols / 2; }
  int64_t rows_at_once() const override { return kRowsAtOnce; }

 protected:
  void codes(const Codes& of) const override {
    for (int64_t k = 0; k < of.cols; ++k) {
      int16_t* out = of.out + k;
      for (int64_t r = of.row, end = r + of.rows; r < end;) {
        if (r % 8 == 0 && r + 8 <= end) {
          const uint32_t word = word_at(words_, (of.col + k) * (rows / 8) + r / 8);
          for (int64_t i = 0; i < 8; ++i)
            out[i * of.next] = static_cast<int16_t>(word >> (4 * kAwqPlaces[i]) & 15);
          r += 8, out += 8 * of.next;
        } else {
          *out = static_cast<int16_t>(at(words_, of.col + k, r));
          r += 1, out += of.next;
        }
      }
    }
  }
  Group group(int64_t row, int64_t group) const override {
    const float scale = number_at(scales_, group * rows + row);
    return {scale, zeros_ == nullptr ? 8 : at(*zeros_, group, row)};
  }
  bool one_zero() const override { return zeros_ == nullptr || all_fields_same(*zeros_, 4); }

 private:
  int32_t at(const StoredTensor& words, int64_t line, int64_t row) const {
    const uint32_t word = word_at(words, line * (rows / 8) + row / 8);
    return static_cast<int32_t>(word >> (4 * kAwqPlaces[row % 8]) & 15);
  }

  const StoredTensor& words_;
  const StoredTensor& scales_;
  const StoredTensor* zeros_;
};

// Groups by the scales, which both formats hold in the same way.
int64_t groups_of(const WantedWeight& w) {
  const StoredTensor& scales = w.need(".scales", kScaleTypes);
  if (scales.shape.size() != 2) w.fail("its scales are no matrix");
  return scales.shape[0];
}

}  // namespace

WeightSourcePtr open_gptq(const WantedWeight& w) {
  if (w.find(".qweight") == nullptr || w.quantization.method != StoredQuantization::Method::kGptq)
    return nullptr;
  const StoredTensor& words = w.need(".qweight", "I32");
  if (words.shape.size() != 2 || words.shape[1] != w.rows || words.shape[0] < 1 ||
      words.shape[0] > w.cols || words.shape[0] * 32 % w.cols != 0)
    w.fail(format("qweight has the shape %s", shape_text(words.shape).c_str()));
  const int64_t bits = words.shape[0] * 32 / w.cols;
  if (bits > 8 || w.rows * bits % 32 != 0)
    w.fail(format("%lld bits of %lld rows are not whole words", static_cast<long long>(bits),
                  static_cast<long long>(w.rows)));
  return std::make_unique<GptqSource>(w, groups_of(w), bits);
}

WeightSourcePtr open_awq(const WantedWeight& w) {
  if (w.find(".qweight") == nullptr || w.quantization.method != StoredQuantization::Method::kAwq)
    return nullptr;
  if (w.rows % 8 != 0) w.fail("its rows are not whole words of eight");
  return std::make_unique<AwqSource>(w, groups_of(w));
}

}  // namespace inferd
