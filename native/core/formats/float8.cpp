// Weights of 8-bit floats, and of 8-bit integers, with scales of the whole tensor, of each row, or
// of blocks:
//
//   M.weight F8_E4M3 [N, K]   w = e4m3 * scale
//   M.weight I8 [N, K]        w = int8 * scale
//   M.weight_scale, or M.weight_scale_inv   [], [1], [N, 1]; or [N / r, K / c], rounded up, of
//   blocks
//       of r x c; or [N, G] of G groups of inputs. Both names multiply.
//   M.weight_zero_point I8, as many as scales   w = (int8 - zero) * scale
//
// Scales of activations (M.input_scale) are not used: activations keep their own precision, which
// is closer to the model that was quantized.
#include "core/float8.h"

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "core/formats/parts.h"

namespace inferd {
namespace {

struct Scales {
  const StoredTensor& tensor;
  int64_t block_rows, block_cols;  // 0: all
  int64_t across;                  // blocks of a row

  int64_t index(int64_t row, int64_t col) const {
    const int64_t down = block_rows == 0 ? 0 : row / block_rows;
    return down * across + (block_cols == 0 ? 0 : col / block_cols);
  }
  float at(int64_t row, int64_t col) const { return number_at(tensor, index(row, col)); }
};

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

Scales find_scales(const WantedWeight& w) {
  constexpr const char* kDTypes = "F32 F16 BF16";
  const char* name = w.find(".weight_scale") != nullptr ? ".weight_scale" : ".weight_scale_inv";
  const StoredTensor& t = w.need(name, kDTypes);
  const auto elements = t.bytes / dtype_bytes(t.dtype);
  const StoredQuantization& q = w.quantization;
  if (q.block_rows > 0 && t.shape.size() == 2) {
    const int64_t down = blocks_of(w.rows, q.block_rows), across = blocks_of(w.cols, q.block_cols);
    if (t.shape == std::vector<int64_t>{down, across})
      return {t, q.block_rows, q.block_cols, across};
  }
  if (elements == 1 && t.shape.size() <= 2) return {t, 0, 0, 1};
  if (elements == w.rows && t.shape[0] == w.rows && t.shape.size() <= 2) return {t, 1, 0, 1};
  if (t.shape.size() == 2 && t.shape[0] == w.rows && t.shape[1] > 0 && w.cols % t.shape[1] == 0)
    return {t, 1, w.cols / t.shape[1], t.shape[1]};
  w.fail(format("its scales have the shape %s", shape_text(t.shape).c_str()));
}

// Null where there are none, or all of them are 0, as older files say of symmetric weights.
const StoredTensor* find_zeros(const WantedWeight& w, const StoredTensor& scales, DType codes) {
  const StoredTensor* t = w.find(".weight_zero_point");
  const auto none = [](std::byte byte) { return byte == std::byte{0}; };
  if (t == nullptr || std::all_of(t->data, t->data + t->bytes, none)) return nullptr;
  if (codes != DType::kI8) w.fail("its zero points are not 0, and floats have none");
  if (w.need(".weight_zero_point", "I8").bytes != scales.bytes / dtype_bytes(scales.dtype)) {
    w.fail(format("its zero points have the shape %s, and its scales %s",
                  shape_text(t->shape).c_str(), shape_text(scales.shape).c_str()));
  }
  return t;
}

class ScaledSource final : public WeightSource {
 public:
  ScaledSource(const WantedWeight& w, const StoredTensor& codes)
      : WeightSource(w.rows, w.cols),
        codes_(codes),
        scales_(find_scales(w)),
        zeros_(find_zeros(w, scales_.tensor, codes.dtype)) {}
  void floats(int64_t row, int64_t first_col, int64_t count, float* out) const override {
    const int64_t run = scales_.block_cols == 0 ? cols : scales_.block_cols;
    for (int64_t k = 0; k < count;) {
      const int64_t col = first_col + k, end = std::min(count, k + run - col % run);
      const float scale = scales_.at(row, col), zero = zero_at(row, col);
      for (; k < end; ++k) out[k] = (code(row * cols + first_col + k) - zero) * scale;
    }
  }
  // Of integers, where blocks of them have one scale.
  WeightFormat coded() const override {
    const bool whole = scales_.block_cols % kCodedBlock == 0;
    if (codes_.dtype != DType::kI8 || !whole) return kFormatF32;
    if (zeros_ != nullptr) return kCodedInt8Halves;
    const int64_t run = scales_.block_cols == 0 ? cols : scales_.block_cols;
    return longer(kCodedInt8, coded_run(run));
  }
  void blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const override {
    for (int64_t b = first; b < first + count; ++b, ++out) {
      *out = {};
      const int64_t col = b * kCodedBlock, n = std::min(kCodedBlock, cols - col);
      out->scale[0] = out->scale[1] = scales_.at(row, col);
      if (zeros_ != nullptr) out->min[0] = out->min[1] = -out->scale[0] * zero_at(row, col);
      for (int64_t k = 0; k < n; ++k)
        out->codes[k] = static_cast<int8_t>(byte_at(codes_, row * cols + col + k));
    }
  }
  WeightFormat as_stored() const override {
    if (zeros_ != nullptr) return kFormatF32;
    const CodeType type = codes_.dtype == DType::kF8 ? CodeType::kFloat8 : CodeType::kInt8;
    if (scales_.block_cols == 0) return scaled_rows(type, 1, 0);
    const bool known = type == CodeType::kFloat8 && scales_.block_cols == kFloat8Blocks.block_cols;
    if (!known) return kFormatF32;
    return scales_.block_rows == kFloat8Blocks.block_rows ? kFloat8Blocks : kFloat8Groups;
  }
  const StoredTensor* codes() const override { return &codes_; }
  float scale(int64_t row, int64_t col) const override { return scales_.at(row, col); }
  int64_t row_bytes() const override { return cols; }

 private:
  float code(int64_t i) const {
    const uint8_t byte = byte_at(codes_, i);
    return codes_.dtype == DType::kF8 ? e4m3_to_f32(byte)
                                      : static_cast<float>(static_cast<int8_t>(byte));
  }
  float zero_at(int64_t row, int64_t col) const {
    if (zeros_ == nullptr) return 0;
    return static_cast<float>(static_cast<int8_t>(byte_at(*zeros_, scales_.index(row, col))));
  }

  const StoredTensor& codes_;
  Scales scales_;
  const StoredTensor* zeros_;
};

WeightSourcePtr open_scaled(const WantedWeight& w, const char* dtype) {
  const StoredTensor* t = w.find(".weight");
  if (t == nullptr || t->dtype_name != dtype) return nullptr;
  return std::make_unique<ScaledSource>(w, w.need(".weight", dtype, {w.rows, w.cols}));
}

}  // namespace

WeightSourcePtr open_float8(const WantedWeight& w) { return open_scaled(w, "F8_E4M3"); }
WeightSourcePtr open_int8(const WantedWeight& w) { return open_scaled(w, "I8"); }

}  // namespace inferd
