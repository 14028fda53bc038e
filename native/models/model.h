// A model: owns its graph, its buffers and what it says of its keys and values. Every architecture
// is a ModelConfig, of which this makes blocks:
//
//   hidden = embed(ids); each block in order; logits = head(norm(hidden)), of chosen rows only
//
// Thread: made and loaded on the engine's thread; `forward` and `logits` run inside a step, on the
// backend's stream. Neither allocates.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/memory/arena.h"
#include "models/blocks/block.h"
#include "models/blocks/layers.h"
#include "models/config/config.h"

namespace inferd {

// The rotation tables of positions, up to max_len; `memory` is what they lie in.
std::vector<RopeTable> make_ropes(const std::vector<RopeConfig>& configs, Backend& backend,
                                  int64_t max_len, std::vector<DeviceBuffer>& memory);

class Model {
 public:
  // Makes the blocks and asks the backend for nothing but the rotation tables. `max_len`: the
  // longest sequence served.
  Model(ModelConfig config, Backend& backend, int64_t max_len);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const { return config_; }
  // Of every block: what a backend may refuse.
  const std::vector<LayerShape>& shapes() const { return shapes_; }
  // One for each layer with keys and values: what StepContext::kv must hold.
  const std::vector<KvSpec>& kv_specs() const { return kv_specs_; }

  // Lists the checkpoint tensors to load, in order. `dtype` is that of the embedding table on the
  // device, `format_of` chooses for the linear weights. Once.
  void describe(DType dtype, FormatChoice format_of);
  // Their store functions refer to this object.
  const std::vector<WeightPart>& parts() const { return list_->parts; }
  // Of the linear weights: what a backend may refuse.
  const std::vector<WeightFormat>& linear_formats() const { return list_->linear_formats; }
  // Of the tensors that only other ranks hold, as experts are that ranks share out whole.
  int64_t parameters_elsewhere() const { return list_->parameters_elsewhere; }
  // Bytes of the embedding that steps look rows up in and read no further; 0 where it is the head.
  int64_t table_bytes() const { return table_bytes_; }
  // The linears that adapters may add to.
  const std::vector<Linear*>& linears() const { return list_->linears; }
  // Once all parts are stored, before the first step: folds norms into the linears behind them
  // where the backend can.
  void finish_loading();

  // Of every block with experts, in order.
  std::vector<ExpertLoad> expert_loads() const;

  // Takes the activations of a step from `arena`, for the largest batch; a step uses the first
  // rows.
  void carve(Arena& arena, int64_t max_tokens, int64_t max_logit_rows);

  // Hidden states after the final norm of the picked tokens, at most as many as there are, or of
  // all when `picks` is null: [count, hidden], a view of the model's buffers. Writes the keys and
  // values of all tokens; of tokens that are not picked nothing else of the last layer is computed
  // but queries, and attention beside picked tokens.
  Tensor forward(const StepContext& step) const;
  // In place of forward() in a step without tokens, see Block::stand_by.
  void stand_by() const;
  // Rows of the embedding, scaled as the model wants them. Of several ranks all call it.
  void embed(const Tensor& out, const int32_t* ids) const;
  // From here on forward() also leaves what the residual stream holds at these layers: as it enters
  // each, or, of the number of layers, as it leaves the last. Rising; before carve().
  void tap(std::vector<int32_t> layers);
  // [tokens of the last forward, taps * hidden]
  Tensor taps(int64_t rows) const { return head_rows(taps_, rows); }

  // What the last forward() without picks gave, of `rows` rows.
  Tensor states(int64_t rows) const { return head_rows(stream_.normed, rows); }
  // Logits of `count` <= max_logit_rows rows of `states`, which forward() gave: first, first + 1,
  // .. or rows[0], rows[1], .., which is device memory. The result is a view of the model's
  // buffers, whose rows may lie apart. Of several ranks all call it.
  Tensor logits(const Tensor& states, int32_t first, int32_t count) const;
  Tensor logits(const Tensor& states, const int32_t* rows, int32_t count) const;
  // The same of this rank's share of the vocabulary alone: shard().vocab(..). No collective.
  Tensor own_logits(const Tensor& states, int32_t first, int32_t count) const;
  Tensor own_logits(const Tensor& states, const int32_t* rows, int32_t count) const;
  const Shard& shard() const { return config_.shard; }
  // The ids that this rank embeds and has logits of.
  Share ids() const { return shard().vocab(config_.vocab_size); }

 private:
  void describe_embedding(const TensorSlice& table);
  Tensor picked_states(const Tensor& states, const int32_t* rows, int32_t count) const;
  ModelConfig config_;
  Backend& backend_;
  std::vector<DeviceBuffer> frequencies_;
  std::vector<RopeTable> ropes_;  // of config_.ropes
  struct Layer {
    std::string prefix;  // of its tensors
    std::vector<std::unique_ptr<Block>> blocks;
  };
  std::vector<Layer> layers_;
  const Block* last_mixing_ = nullptr;    // the last block that looks at other tokens
  std::vector<NextReader> next_readers_;  // of each block in turn: Stream::next_reader
  std::vector<LayerShape> shapes_;
  std::vector<KvSpec> kv_specs_;

  std::unique_ptr<WeightList> list_;
  EmbeddingTable embedding_;
  Linear codes_;  // of an embedding that is stored so and is not the head
  DeviceVector final_norm_;
  Linear head_;
  const Linear* packed_ = nullptr;  // in whose rows ids are looked up, in place of embedding_
  int64_t table_bytes_ = 0;

  void keep_tap(size_t layer, const Stream& s) const;

  Stream stream_;  // [max_tokens, hidden] each
  std::vector<int32_t> tapped_;
  Tensor taps_;    // [max_tokens, tapped * hidden]
  Tensor picked_;  // [max_logit_rows, hidden] rows that get logits
  Tensor logits_;  // [max_logit_rows, vocab] float32; of several ranks a share for each
  Tensor part_;    // [max_logit_rows, a share] of this one
};

}  // namespace inferd
