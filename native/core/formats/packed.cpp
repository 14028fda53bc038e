// The packed formats of compressed-tensors: codes along the inputs. K inputs, N outputs, G groups.
//
//   integers  weight_packed I32 [N, K b / 32]: b-bit codes of q + 2^(b-1), from the lowest bits on
//             weight_scale [N, G]; weight_zero_point I32 [N b / 32, G], packed down the rows in the
//             same way, or in older files I8 [N, G], as it is; weight_g_idx [K]: the group of each
//             input
//             w = scale (q - zero)
//   floats    weight_packed U8 [N, K / 2]: e2m1, the lower half is the even input
//             MXFP4: weight_scale U8 [N, K / 32], e8m0
//             NVFP4: weight_scale F8_E4M3 [N, K / 16], divided by weight_global_scale F32 [1]
#include <memory>

#include "core/error.h"
#include "core/float8.h"
#include "core/formats/parts.h"

namespace inferd {
namespace {

class PackedSource final : public GroupedSource {
 public:
  PackedSource(const WantedWeight& w, int64_t groups, int64_t bits)
      : GroupedSource(w, groups),
        bits_(bits),
        middle_(1 << (bits - 1)),
        words_(w.need(".weight_packed", "I32")),
        scales_(w.need(".weight_scale", kScaleTypes, {w.rows, groups})),
        zeros_(w.find(".weight_zero_point")) {
    if (zeros_ != nullptr && !packed_zeros())
      w.need(".weight_zero_point", "I8", {w.rows, groups});
    else if (zeros_ != nullptr)
      w.need(".weight_zero_point", "I32", {(w.rows * bits + 31) / 32, groups});
    if (w.find(".weight_g_idx") != nullptr) take_order(w, w.need(".weight_g_idx", "I32", {w.cols}));
    choose_coded(bits);
  }
  int64_t row_bytes() const override { return cols * bits_ / 8; }

 protected:
  void codes(const Codes& of) const override {
    for (int64_t r = 0; r < of.rows; ++r) {
      Fields{words_, (of.row + r) * words_.shape[1], 1, bits_}.read(of.col, of.cols,
                                                                    of.out + r * of.next);
    }
  }
  Group group(int64_t row, int64_t group) const override {
    const float scale = number_at(scales_, row * groups() + group);
    if (zeros_ == nullptr) return {scale, middle_};
    if (!packed_zeros())
      return {scale, middle_ + static_cast<int8_t>(byte_at(*zeros_, row * groups() + group))};
    return {scale, static_cast<int32_t>(Fields{*zeros_, group, groups(), bits_}.at(row))};
  }
  bool one_zero() const override {
    return zeros_ == nullptr || (packed_zeros() && all_fields_same(*zeros_, bits_));
  }

 private:
  bool packed_zeros() const { return zeros_->dtype_name != "I8"; }

  int64_t bits_;
  int32_t middle_;
  const StoredTensor& words_;
  const StoredTensor& scales_;
  const StoredTensor* zeros_;
};

// [1], or a scalar.
float global_scale(const WantedWeight& w) {
  const StoredTensor& t = w.need(".weight_global_scale", "F32");
  if (t.bytes != dtype_bytes(t.dtype))
    w.fail(format("weight_global_scale has the shape %s", shape_text(t.shape).c_str()));
  return number_at(t, 0);
}

class Float4Source final : public GroupedSource {
 public:
  Float4Source(const WantedWeight& w, int64_t groups)
      : GroupedSource(w, groups),
        codes_(w.need(".weight_packed", "U8", {w.rows, w.cols / 2})),
        scales_(w.need(".weight_scale", "U8 F8_E4M3", {w.rows, groups})) {
    if (scales_.dtype == DType::kF8) divisor_ = global_scale(w);
    choose_coded(5);  // twice the numbers: -12 .. 12
  }
  int64_t row_bytes() const override { return cols / 2; }
  WeightFormat compact() const override {
    const bool powers = scales_.dtype != DType::kF8;
    if (powers && groups() * kCodedBlock == cols) return kCodedFloat4;
    return !powers && groups() * kCodedFloat4Halves.block_cols == cols ? kCodedFloat4Halves
                                                                       : coded();
  }

 protected:
  void codes(const Codes& of) const override {
    for (int64_t r = 0; r < of.rows; ++r) {
      for (int64_t k = 0; k < of.cols; ++k) {
        const int64_t col = of.col + k;
        const int byte = byte_at(codes_, (of.row + r) * (cols / 2) + col / 2);
        of.out[r * of.next + k] = kTwiceE2m1[col % 2 == 0 ? byte & 15 : byte >> 4];
      }
    }
  }
  bool one_zero() const override { return true; }
  // Half a scale, of codes that are twice the number.
  Group group(int64_t row, int64_t group) const override {
    const int64_t at = row * groups() + group;
    const float scale =
        scales_.dtype == DType::kF8 ? number_at(scales_, at) : e8m0_to_f32(byte_at(scales_, at));
    return {0.5f * scale / divisor_, 0};
  }

 private:
  const StoredTensor& codes_;
  const StoredTensor& scales_;
  float divisor_ = 1;
};

int64_t groups_of(const WantedWeight& w, const char* dtypes) {
  const StoredTensor& scales = w.need(".weight_scale", dtypes);
  if (scales.shape.size() != 2 || scales.shape[0] != w.rows)
    w.fail(format("its scales have the shape %s", shape_text(scales.shape).c_str()));
  return scales.shape[1];
}

}  // namespace

WeightSourcePtr open_packed(const WantedWeight& w) {
  const StoredTensor* words = w.find(".weight_packed");
  if (words == nullptr || words->dtype_name != "I32") return nullptr;
  const auto fits = [&](int64_t bits) { return words->shape[1] == (w.cols * bits + 31) / 32; };
  int64_t bits = 1;
  if (words->shape.size() == 2 && words->shape[0] == w.rows)
    while (bits <= 8 && !fits(bits)) ++bits;
  else
    bits = 9;
  if (bits > 8) w.fail(format("weight_packed has the shape %s", shape_text(words->shape).c_str()));
  return std::make_unique<PackedSource>(w, groups_of(w, kScaleTypes), bits);
}

WeightSourcePtr open_float4(const WantedWeight& w) {
  const StoredTensor* codes = w.find(".weight_packed");
  if (codes == nullptr || codes->dtype_name != "U8") return nullptr;
  if (w.cols % 2 != 0) w.fail("it has an odd number of columns");
  return std::make_unique<Float4Source>(w, groups_of(w, "U8 F8_E4M3"));
}

}  // namespace inferd
