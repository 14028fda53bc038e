// The one transformer decoder: every supported architecture is a ModelConfig for it. Describes its
// weights, plans its step memory, and computes hidden states and logits as plain calls of Backend
// ops.
//
// Thread: made and loaded on the engine's thread; `forward` and `logits` run inside a step, on the
// backend's stream. Neither allocates.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/backend.h"
#include "models/config.h"
#include "models/layers.h"

namespace inferd {

// Activations of a step, carved from the step arena for the largest batch; a step uses the first
// rows.
struct DecoderBuffers {
  Tensor hidden;     // [max_tokens, hidden] the residual stream
  Tensor normed;     // [max_tokens, hidden]
  Tensor delta;      // [max_tokens, hidden] what a block adds to the residual, where that is apart
  Tensor qkv;        // [max_tokens, (heads + 2 kv_heads) * head_dim]
  Tensor attended;   // [max_tokens, heads * head_dim]
  Tensor gate_up;    // [max_tokens, 2 * intermediate]; shares memory with qkv and attended
  Tensor activated;  // [max_tokens, intermediate]
  Tensor picked;     // [max_logit_rows, hidden] rows that get logits
  Tensor logits;     // [max_logit_rows, vocab] float32

  static DecoderBuffers carve(Arena& arena, const ModelConfig& config, DType activation,
                              int64_t max_tokens, int64_t max_logit_rows);
};

class Decoder {
 public:
  // `dtype` is that of the weights on the device; `max_len` the longest sequence. Appends every
  // tensor it needs to parts().
  Decoder(const ModelConfig& config, Backend& backend, DType dtype, DType linear_dtype,
          int64_t max_len);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // The checkpoint tensors to load, in order. Their store functions refer to this object.
  const std::vector<WeightPart>& parts() const { return list_.parts; }
  const ModelConfig& config() const { return config_; }

  // Once all parts are stored, before the first step: folds norms into the linears behind them
  // where the backend can.
  void finish_loading();

  // Hidden states after the final norm of the picked tokens, at most as many as there are, or of
  // all when `picks` is null: [count, hidden], a view of `buffers`. Writes the keys and values of
  // all tokens into `kv` ([num_layers]); of others nothing else of the last layer is computed but
  // queries, and attention beside picked tokens.
  Tensor forward(const DecoderBuffers& buffers, const std::vector<KvLayer>& kv,
                 const SlotTables& slots, const StepBatch& batch, const Picks* picks) const;
  // Logits of `count` <= max_logit_rows rows of `states`, which forward() gave: first, first + 1,
  // .. or rows[0], rows[1], .., which is device memory. The result is a view of buffers.logits.
  Tensor logits(const DecoderBuffers& buffers, const Tensor& states, int32_t first,
                int32_t count) const;
  Tensor logits(const DecoderBuffers& buffers, const Tensor& states, const int32_t* rows,
                int32_t count) const;

 private:
  struct Layer {
    DeviceVector input_norm, post_norm, q_norm, k_norm;
    Linear qkv, output{LinearUse::kAdd}, gate_up{LinearUse::kGated}, down{LinearUse::kAdd};
  };
  void describe(Layer& layer, int32_t index);
  void project(const Layer& layer, const DecoderBuffers& b, const KvLayer& kv,
               const SlotTables& slots, const StepBatch& batch) const;
  void attend(const DecoderBuffers& b, const KvLayer& kv, int32_t window, const SlotTables& slots,
              const StepBatch& batch, const Picks* picks) const;
  DecoderBuffers picked(const DecoderBuffers& b, int64_t tokens, const Picks& picks) const;
  void mlp(const Layer& layer, const DecoderBuffers& b, int64_t tokens) const;
  NormArgs norm(const DeviceVector& weight, const DecoderBuffers& b, int64_t tokens) const;
  void add_to_residual(const Linear& linear, const DecoderBuffers& b, const Tensor& x) const;

  ModelConfig config_;
  Backend& backend_;
  WeightList list_;
  EmbeddingTable embedding_;
  // By pointer: the parts' store functions keep their addresses.
  std::vector<std::unique_ptr<Layer>> layers_;
  DeviceVector final_norm_;
  Linear head_;
  DeviceBuffer inv_freq_;
  RopeTable rope_{};
};

}  // namespace inferd
