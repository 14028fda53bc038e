// See weight_source.h.
#include "core/formats/weight_source.h"

#include <algorithm>
#include <utility>

#include "core/checkpoint/block_types.h"
#include "core/error.h"
#include "core/formats/parts.h"
#include "core/half.h"
#include "core/rope_table.h"

namespace inferd {
namespace {

constexpr std::string_view kWeight = ".weight";

// The first that knows a weight opens it. The formats with tensors of their own go first.
constexpr OpenWeight kFormats[] = {open_gptq,   open_awq,   open_packed,
                                   open_float4, open_int8,  open_float8,
                                   open_blocks, open_plain, open_latent_parts};

class PlainSource final : public WeightSource {
 public:
  PlainSource(int64_t rows, int64_t cols, const StoredTensor& t)
      : WeightSource(rows, cols), tensor_(t) {}
  void floats(int64_t row, int64_t first_col, int64_t count, float* out) const override {
    for (int64_t k = 0; k < count; ++k) out[k] = number_at(tensor_, row * cols + first_col + k);
  }
  const StoredTensor* plain() const override { return &tensor_; }
  int64_t row_bytes() const override { return cols * dtype_bytes(tensor_.dtype); }

 private:
  const StoredTensor& tensor_;
};

class BlockSource final : public WeightSource {
 public:
  BlockSource(int64_t rows, int64_t cols, const StoredTensor& t)
      : WeightSource(rows, cols), type_(*t.blocks), tensor_(t) {}
  void floats(int64_t row, int64_t first_col, int64_t count, float* out) const override {
    CodedBlock block[kMostBlocks];
    const int64_t end = first_col + count;
    for (int64_t at = first_col / type_.values; at * type_.values < end; ++at) {
      type_.decode(bytes(row, at), block);
      const int64_t first = at * type_.values;
      for (int64_t k = std::max(first_col, first); k < std::min(end, first + type_.values); ++k)
        out[k - first_col] = block[(k - first) / kCodedBlock].weight((k - first) % kCodedBlock);
    }
  }
  void blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const override {
    const int64_t each = type_.values / kCodedBlock, end = first + count;
    for (int64_t b = first; b < end;) {
      const int64_t in_block = b % each, n = std::min(each - in_block, end - b);
      const std::byte* from = bytes(row, b / each);
      if (n == each) {
        type_.decode(from, out);
      } else {
        CodedBlock whole[kMostBlocks];
        type_.decode(from, whole);
        std::copy_n(whole + in_block, n, out);
      }
      b += n;
      out += n;
    }
  }
  WeightFormat coded() const override { return type_.coded; }
  WeightFormat compact() const override {
    return type_.compact.scaled ? type_.compact : type_.coded;
  }
  int64_t row_bytes() const override { return cols / type_.values * type_.bytes; }

 private:
  static constexpr int64_t kMostBlocks = 256 / kCodedBlock;
  const std::byte* bytes(int64_t row, int64_t block) const {
    return tensor_.data + row * row_bytes() + block * type_.bytes;
  }

  const BlockType& type_;
  const StoredTensor& tensor_;
};

// See in_halves.
class HalvesSource final : public WeightSource {
 public:
  HalvesSource(WeightSourcePtr of, int64_t head_rows, int64_t first)
      : WeightSource(of->rows, of->cols),
        of_(std::move(of)),
        head_rows_(head_rows),
        first_(first) {}
  void floats(int64_t row, int64_t first_col, int64_t count, float* out) const override {
    if (rows > 1) return of_->floats(stored(row), first_col, count, out);
    for (int64_t k = 0; k < count; ++k) of_->floats(0, stored(first_col + k), 1, out + k);
  }
  void blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const override {
    of_->blocks(stored(row), first, count, out);
  }
  WeightFormat coded() const override { return rows > 1 ? of_->coded() : kFormatF32; }
  std::span<const int32_t> order() const override { return of_->order(); }
  bool quantized() const override { return of_->quantized(); }
  WeightFormat compact() const override { return rows > 1 ? of_->compact() : kFormatF32; }
  int64_t row_bytes() const override { return of_->row_bytes(); }

 private:
  int64_t stored(int64_t row) const { return row_in_pairs(row, head_rows_, first_); }

  WeightSourcePtr of_;
  int64_t head_rows_, first_;
};

void check_shape(const std::string& name, const StoredTensor& t,
                 const std::vector<int64_t>& shape) {
  if (t.shape == shape) return;
  throw Error(ErrorCode::kBadModel,
              format("The tensor %s has the shape %s, and config.json asks for %s.", name.c_str(),
                     shape_text(t.shape).c_str(), shape_text(shape).c_str()));
}

// A tensor of the weight's own name, in one of the ways in which that may lie there.
const StoredTensor* own_tensor(const WantedWeight& w, bool blocks) {
  const StoredTensor* t = w.find(".weight");
  if (t == nullptr || (t->blocks != nullptr) != blocks || (!blocks && !t->floating)) return nullptr;
  check_shape(w.module + ".weight", *t, {w.rows, w.cols});
  return t;
}

}  // namespace

WeightSourcePtr open_rows(const StoredTensor& t, int64_t rows, int64_t cols) {
  if (t.blocks != nullptr) return std::make_unique<BlockSource>(rows, cols, t);
  return std::make_unique<PlainSource>(rows, cols, t);
}

WeightSourcePtr open_plain(const WantedWeight& w) {
  const StoredTensor* t = own_tensor(w, false);
  return t == nullptr ? nullptr : open_rows(*t, w.rows, w.cols);
}

WeightSourcePtr open_blocks(const WantedWeight& w) {
  const StoredTensor* t = own_tensor(w, true);
  return t == nullptr ? nullptr : open_rows(*t, w.rows, w.cols);
}

void WeightSource::blocks(int64_t, int64_t, int64_t, CodedBlock*) const {
  throw Error(ErrorCode::kUsage, "A weight without codes was asked for blocks of them.");
}

WeightSourcePtr in_halves(WeightSourcePtr source, int64_t head_rows, int64_t first) {
  const int64_t heads = source->rows > 1 ? source->rows : source->cols;
  if (heads % head_rows != 0)
    throw Error(ErrorCode::kBadModel, "The rows of a weight of attention are not whole heads.");
  return std::make_unique<HalvesSource>(std::move(source), head_rows, first);
}

WeightSourcePtr open_weight(const Checkpoint& checkpoint, const std::string& name,
                            const std::vector<int64_t>& shape,
                            const StoredQuantization& quantization) {
  const bool matrix = shape.size() == 2 && name.ends_with(kWeight);
  if (!matrix) {
    const StoredTensor* t = checkpoint.find(name);
    if (t == nullptr) return nullptr;
    check_shape(name, *t, shape);
    if (!t->floating) {
      throw Error(ErrorCode::kBadModel,
                  format("The tensor %s has the dtype %s; F32, F16 and BF16 are supported.",
                         name.c_str(), t->dtype_name.c_str()));
    }
    return std::make_unique<PlainSource>(1, shape.back(), *t);
  }
  const WantedWeight wanted{checkpoint, name.substr(0, name.size() - kWeight.size()), shape[0],
                            shape[1], quantization};
  for (const OpenWeight open : kFormats) {
    if (WeightSourcePtr source = open(wanted)) return source;
  }
  const StoredTensor* t = checkpoint.find(name);
  if (t == nullptr) return nullptr;
  throw Error(ErrorCode::kBadModel,
              format("The tensor %s has the dtype %s; F32, F16 and BF16 are supported, and "
                     "quantized weights with their scales.",
                     name.c_str(), t->dtype_name.c_str()));
}

}  // namespace inferd
