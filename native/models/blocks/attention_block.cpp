// See attention_block.h.
#include "models/blocks/attention_block.h"

#include <utility>

namespace inferd {

AttentionBlock::AttentionBlock(const ModelConfig& model, const BlockConfig& config,
                               const std::vector<RopeTable>& ropes, size_t kv_index)
    : model_(model),
      config_(std::get<AttentionConfig>(config.block)),
      residual_(model, config),
      kv_{.kv_heads = config_.kv_heads, .head_dim = config_.head_dim},
      kv_index_(kv_index),
      output_(residual_.epilogue()) {
  if (config_.rope != kNoRope) rope_ = ropes[static_cast<size_t>(config_.rope)];
}

void AttentionBlock::describe(WeightList& list, const std::string& layer) {
  const AttentionConfig& c = config_;
  const std::string at = layer + "self_attn.";
  const int64_t hidden = model_.hidden_size;
  residual_.describe(list, layer, model_);
  qkv_.add(list, at, {{"q_proj", c.q_size()}, {"k_proj", c.kv_size()}, {"v_proj", c.kv_size()}},
           hidden, c.qkv_bias);
  if (c.qk_norm != QkNorm::kNone) {
    const bool each = c.qk_norm == QkNorm::kEachHead;
    const int64_t q = each ? c.head_dim : c.q_size(), k = each ? c.head_dim : c.kv_size();
    q_norm_.add(list, TensorSlice::whole(at + "q_norm.weight", {q}), true, model_.norm_offset);
    k_norm_.add(list, TensorSlice::whole(at + "k_norm.weight", {k}), true, model_.norm_offset);
  }
  output_.add(list, at, {{"o_proj", hidden}}, c.q_size(), c.output_bias);
}

void AttentionBlock::finish_loading(Backend& backend) {
  residual_.fold(backend, qkv_);
  qkv_.hand_bias(backend);
  output_.hand_bias(backend);
}

void AttentionBlock::carve(Arena& arena, DType activation, int64_t max_tokens) {
  qkv_rows_ = arena.take_matrix(activation, max_tokens, config_.qkv_size());
  attended_ = arena.take_matrix(activation, max_tokens, config_.q_size());
}

LayerShape AttentionBlock::shape() const {
  return {.hidden_size = model_.hidden_size,
          .heads = config_.heads,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.head_dim,
          .rotary_dim = rope_.rotary_dim};
}

void AttentionBlock::project(Backend& backend, const StepContext& step, const Stream& s) const {
  const AttentionConfig& c = config_;
  const Tensor qkv = head_rows(qkv_rows_, s.rows);
  residual_.read(backend, s, qkv_, qkv, {});
  const bool each = c.qk_norm == QkNorm::kEachHead;
  if (c.qk_norm == QkNorm::kAllHeads) {
    const Tensor q = columns(qkv, 0, c.q_size()), k = columns(qkv, c.q_size(), c.kv_size());
    backend.rms_norm(q, q, q_norm_.data(), model_.norm_eps);
    backend.rms_norm(k, k, k_norm_.data(), model_.norm_eps);
  }
  backend.rope_and_cache({.qkv = qkv,
                          .q_norm = each ? q_norm_.data() : nullptr,
                          .k_norm = each ? k_norm_.data() : nullptr,
                          .norm_eps = model_.norm_eps,
                          .heads = c.heads,
                          .kv = step.kv[kv_index_],
                          .rope = rope_},
                         step.slots, step.batch);
}

// The picked rows of the residual stream and of the attention, in front of buffers that hold
// nothing any more: `normed`, and that of q, k and v.
void AttentionBlock::pick(Backend& backend, const Picks& picks, Stream& s, Tensor& attended) const {
  std::swap(s.hidden, s.normed);
  const auto gather = [&](const Tensor& to, const Tensor& from) {
    backend.gather_rows(head_rows(to, picks.count), head_rows(from, s.rows), picks.rows,
                        picks.count);
  };
  gather(s.hidden, s.normed);
  const Tensor picked =
      Tensor::matrix(qkv_rows_.data, attended.dtype, picks.count, attended.cols());
  gather(picked, attended_);
  attended = picked;
  s.rows = picks.count;
}

void AttentionBlock::forward(Backend& backend, const StepContext& step, Stream& s,
                             bool narrow) const {
  project(backend, step, s);
  const Picks* picks = narrow ? step.picks : nullptr;
  Tensor attended = head_rows(attended_, s.rows);
  if (picks != nullptr && picks->count == 0) {
    s.rows = 0;
    return;
  }
  backend.attention({.out = attended,
                     .qkv = head_rows(qkv_rows_, s.rows),
                     .heads = config_.heads,
                     .kv = step.kv[kv_index_],
                     .scale = config_.scale,
                     .softcap = config_.softcap,
                     .window = config_.window,
                     .picks = picks},
                    step.slots, step.batch);
  if (picks != nullptr) pick(backend, *picks, s, attended);
  residual_.write(backend, s, output_, attended);
}

}  // namespace inferd
