// See stacked_experts.h.
#include "core/formats/stacked_experts.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/float8.h"
#include "core/formats/parts.h"

namespace inferd {
namespace {

// "M.3.up_proj.weight" taken apart.
struct ExpertName {
  std::string tensor;  // "M.gate_up_proj"
  int64_t expert = 0;
  bool two = false;  // rows of gate and up are in it
  bool up = false;
  bool bias = false;
};

std::optional<ExpertName> take_apart(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return {};
  ExpertName n;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + at + kExperts.size(), end, n.expert);
  if (error != std::errc() || n.expert < 0) return {};
  const std::string_view part(rest, static_cast<size_t>(end - rest));
  n.bias = part.ends_with(".bias");
  n.up = part.starts_with(".up_proj.");
  n.two = n.up || part.starts_with(".gate_proj.");
  if (!n.two && !part.starts_with(".down_proj.")) return {};
  n.tensor = name.substr(0, at) + ".experts." + (n.two ? "gate_up_proj" : "down_proj");
  return n;
}

// Which row of the stack is a row of the expert's matrix.
struct StackedRows {
  int64_t first, step;

  int64_t at(int64_t row) const { return first + row * step; }
};

StackedRows rows_of(const ExpertName& n, int64_t rows, const ExpertLayout& layout) {
  if (!n.two) return {n.expert * rows, 1};
  const int64_t first = n.expert * 2 * rows;
  return layout.in_turn ? StackedRows{first + n.up, 2} : StackedRows{first + n.up * rows, 1};
}

[[noreturn]] void misfit(const std::string& name, const StoredTensor& t) {
  throw Error(ErrorCode::kBadModel,
              format("The tensor %s has the shape %s and the dtype %s, which does not fit the "
                     "experts that config.json asks for.",
                     name.c_str(), shape_text(t.shape).c_str(), t.dtype_name.c_str()));
}

// Numbers as they are.
class StackedSource final : public WeightSource {
 public:
  // Element [row][col] lies at row * row_step + col * col_step, from the first of the expert.
  StackedSource(int64_t rows, int64_t cols, const StoredTensor& t, int64_t first, int64_t row_step,
                int64_t col_step)
      : WeightSource(rows, cols), tensor_(t), first_(first), row_(row_step), col_(col_step) {}
  void floats(int64_t row, int64_t first_col, int64_t count, float* out) const override {
    const int64_t from = first_ + row * row_ + first_col * col_;
    for (int64_t k = 0; k < count; ++k) out[k] = number_at(tensor_, from + k * col_);
  }
  bool quantized() const override { return false; }
  int64_t row_bytes() const override { return cols * dtype_bytes(tensor_.dtype); }

 private:
  const StoredTensor& tensor_;
  int64_t first_, row_, col_;
};

// MXFP4.
class StackedFloat4Source final : public WeightSource {
 public:
  StackedFloat4Source(int64_t rows, int64_t cols, const StoredTensor& blocks,
                      const StoredTensor& scales, StackedRows at)
      : WeightSource(rows, cols), blocks_(blocks), scales_(scales), at_(at) {}
  void floats(int64_t row, int64_t first_col, int64_t count, float* out) const override {
    const int64_t stored = at_.at(row);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t col = first_col + k;
      out[k] = 0.5f * scale(stored, col / kCodedBlock) * twice(stored, col);
    }
  }
  void blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const override {
    const int64_t stored = at_.at(row);
    for (int64_t b = first; b < first + count; ++b, ++out) {
      *out = {};
      out->scale[0] = out->scale[1] = 0.5f * scale(stored, b);
      for (int64_t k = 0; k < kCodedBlock; ++k) out->codes[k] = twice(stored, b * kCodedBlock + k);
    }
  }
  WeightFormat coded() const override { return kCodedInt8; }
  WeightFormat compact() const override { return kCodedFloat4; }
  int64_t row_bytes() const override { return cols / 2; }

 private:
  float scale(int64_t stored, int64_t block) const {
    return e8m0_to_f32(byte_at(scales_, stored * (cols / kCodedBlock) + block));
  }
  int8_t twice(int64_t stored, int64_t col) const {
    const int byte = byte_at(blocks_, stored * (cols / 2) + col / 2);
    return kTwiceE2m1[col % 2 == 0 ? byte & 15 : byte >> 4];
  }

  const StoredTensor& blocks_;
  const StoredTensor& scales_;
  StackedRows at_;
};

WeightSourcePtr open_bias(const ExpertName& n, const std::string& name, const StoredTensor& t,
                          int64_t rows, const ExpertLayout& layout) {
  const bool fits = t.floating && t.shape.size() == 2 && n.expert < t.shape[0] &&
                    t.shape[1] == rows * (n.two ? 2 : 1);
  if (!fits) misfit(name, t);
  const StackedRows at = rows_of(n, rows, layout);
  return std::make_unique<StackedSource>(1, rows, t, at.first, 0, at.step);
}

// Whether the experts' other matrices, which are not square where these are, are [inputs, outputs].
bool others_lie(const Checkpoint& checkpoint, const ExpertName& n, int64_t rows, int64_t cols) {
  const std::string experts = n.tensor.substr(0, n.tensor.rfind('.') + 1);
  const StoredTensor* t = checkpoint.find(experts + (n.two ? "down_proj" : "gate_up_proj"));
  return t != nullptr && t->shape.size() == 3 && t->shape[1] == rows &&
         t->shape[2] == (n.two ? cols : 2 * cols);
}

WeightSourcePtr open_plain_stack(const Checkpoint& checkpoint, const ExpertName& n,
                                 const std::string& name, const StoredTensor& t, int64_t rows,
                                 int64_t cols, const ExpertLayout& layout) {
  const int64_t outs = n.two ? 2 * rows : rows;
  if (!t.floating || t.shape.size() != 3 || n.expert >= t.shape[0]) misfit(name, t);
  const bool upright = t.shape[1] == outs && t.shape[2] == cols;
  const bool lying = t.shape[1] == cols && t.shape[2] == outs;
  if (!upright && !lying) misfit(name, t);
  const StackedRows at = rows_of(n, rows, layout);
  const bool square = upright && lying;
  if (!upright || (square && (layout.transposed || others_lie(checkpoint, n, rows, cols)))) {
    const int64_t first = n.expert * outs * cols + (at.first - n.expert * outs);
    return std::make_unique<StackedSource>(rows, cols, t, first, at.step, outs);
  }
  return std::make_unique<StackedSource>(rows, cols, t, at.first * cols, at.step * cols, 1);
}

WeightSourcePtr open_float4_stack(const ExpertName& n, const Checkpoint& checkpoint,
                                  const StoredTensor& blocks, int64_t rows, int64_t cols,
                                  const ExpertLayout& layout) {
  const std::string name = n.tensor + "_scales";
  const StoredTensor* scales = checkpoint.find(name);
  if (scales == nullptr)
    throw Error(ErrorCode::kBadModel, format("The tensor %s is missing.", name.c_str()));
  const int64_t outs = n.two ? 2 * rows : rows, across = cols / kCodedBlock;
  const auto fits = [&](const StoredTensor& t, std::vector<int64_t> shape) {
    return t.dtype_name == "U8" && t.shape.size() == shape.size() && n.expert < t.shape[0] &&
           std::equal(shape.begin() + 1, shape.end(), t.shape.begin() + 1);
  };
  if (cols % kCodedBlock != 0 || !fits(blocks, {0, outs, across, kCodedBlock / 2}))
    misfit(n.tensor + "_blocks", blocks);
  if (!fits(*scales, {0, outs, across})) misfit(name, *scales);
  return std::make_unique<StackedFloat4Source>(rows, cols, blocks, *scales,
                                               rows_of(n, rows, layout));
}

}  // namespace

WeightSourcePtr open_stacked_expert(const Checkpoint& checkpoint, const std::string& name,
                                    const std::vector<int64_t>& shape, const ExpertLayout& layout) {
  const std::optional<ExpertName> n = take_apart(name);
  if (!n) return nullptr;
  const std::string stored = n->tensor + (n->bias ? "_bias" : "");
  if (const StoredTensor* t = checkpoint.find(stored); t != nullptr) {
    if (shape.size() == 1) return open_bias(*n, stored, *t, shape[0], layout);
    return open_plain_stack(checkpoint, *n, stored, *t, shape[0], shape[1], layout);
  }
  const StoredTensor* blocks = checkpoint.find(n->tensor + "_blocks");
  if (blocks == nullptr || n->bias || shape.size() != 2) return nullptr;
  return open_float4_stack(*n, checkpoint, *blocks, shape[0], shape[1], layout);
}

}  // namespace inferd
