// What keys and values of latent attention are made by, where a GGUF file holds the two apart and
// that of the keys transposed. With H heads, rank R, N and V values of a key and a value:
//
//   attn_k_b  [H, R, N]   attn_v_b  [H, V, R]   read as attn_kv_b  [H (N + V), R]: of each head
//                                               the rows of its keys, then those of its values
#include <atomic>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/parts.h"

namespace inferd {
namespace {

class LatentSource final : public WeightSource {
 public:
  // `keys`: [heads * cols, key_rows], `values`: [heads * value_rows, cols]
  LatentSource(int64_t rows, int64_t cols, WeightSourcePtr keys, WeightSourcePtr values,
               int64_t heads)
      : WeightSource(rows, cols),
        keys_(std::move(keys)),
        values_(std::move(values)),
        key_rows_(keys_->cols),
        value_rows_(values_->rows / heads) {}

  void floats(int64_t row, int64_t first_col, int64_t count, float* out) const override {
    const int64_t head = row / (key_rows_ + value_rows_), at = row % (key_rows_ + value_rows_);
    if (at >= key_rows_)
      return values_->floats(head * value_rows_ + at - key_rows_, first_col, count, out);
    const std::vector<float>& stored = keys_of(head);
    for (int64_t k = 0; k < count; ++k)
      out[k] = stored[static_cast<size_t>((first_col + k) * key_rows_ + at)];
  }
  bool quantized() const override { return keys_->quantized() || values_->quantized(); }
  int64_t row_bytes() const override { return values_->row_bytes(); }

 private:
  // [cols, key_rows]. A row of the weight is a column of it, and blocks are only decoded whole, so
  // a thread keeps the head that it took last.
  const std::vector<float>& keys_of(int64_t head) const {
    struct Taken {
      uint64_t source = 0;
      int64_t head = 0;
      std::vector<float> values;
    };
    thread_local Taken taken;
    if (taken.source == id_ && taken.head == head) return taken.values;
    taken.values.resize(static_cast<size_t>(cols * key_rows_));
    for (int64_t r = 0; r < cols; ++r)
      keys_->floats(head * cols + r, 0, key_rows_, taken.values.data() + r * key_rows_);
    taken.source = id_;
    taken.head = head;
    return taken.values;
  }
  static uint64_t next_id() {
    static std::atomic<uint64_t> last = 0;
    return ++last;
  }

  WeightSourcePtr keys_, values_;
  int64_t key_rows_, value_rows_;
  uint64_t id_ = next_id();  // addresses come again
};

}  // namespace

WeightSourcePtr open_latent_parts(const WantedWeight& w) {
  constexpr std::string_view kBoth = "attn_kv_b";
  if (!w.module.ends_with(kBoth) || w.find(".weight") != nullptr) return nullptr;
  const std::string layer = w.module.substr(0, w.module.size() - kBoth.size());
  const StoredTensor* k = w.checkpoint.find(layer + "attn_k_b.weight");
  const StoredTensor* v = w.checkpoint.find(layer + "attn_v_b.weight");
  if (k == nullptr || v == nullptr) return nullptr;
  const bool fit = k->shape.size() == 3 && v->shape.size() == 3 && k->shape[0] == v->shape[0] &&
                   k->shape[1] == w.cols && v->shape[2] == w.cols &&
                   k->shape[0] * (k->shape[2] + v->shape[1]) == w.rows;
  if (!fit) {
    w.fail("its parts attn_k_b " + shape_text(k->shape) + " and attn_v_b " + shape_text(v->shape) +
           " do not make the matrix " + shape_text({w.rows, w.cols}));
  }
  const int64_t heads = k->shape[0];
  return std::make_unique<LatentSource>(w.rows, w.cols, open_rows(*k, heads * w.cols, k->shape[2]),
                                        open_rows(*v, heads * v->shape[1], w.cols), heads);
}

}  // namespace inferd
