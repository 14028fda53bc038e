// See attention_block.h.
#include "models/blocks/attention_block.h"

namespace inferd {

AttentionBlock::AttentionBlock(const ModelConfig& model, const BlockConfig& config,
                               const std::vector<RopeTable>& ropes, size_t kv_index)
    : model_(model),
      whole_(std::get<AttentionConfig>(config.block)),
      config_(whole_.share(model.shard)),
      residual_(model, config),
      kv_{.kv_heads = config_.kv_heads, .head_dim = config_.head_dim, .all_heads = whole_.kv_heads},
      kv_index_(kv_index),
      output_(residual_.epilogue()) {
  if (config_.rope != kNoRope) rope_ = ropes[static_cast<size_t>(config_.rope)];
}

void AttentionBlock::describe(WeightList& list, const std::string& layer) {
  const AttentionConfig& c = whole_;
  const Shard& shard = model_.shard;
  const std::string at = layer + "self_attn.";
  const int64_t hidden = model_.hidden_size;
  const Share q = shard.of(c.heads).times(c.head_dim);
  const Share kv = shard.kv_heads(c.kv_heads).times(c.head_dim);
  residual_.describe(list, layer, model_);
  qkv_.add(list, at,
           {{"q_proj", c.q_size(), q}, {"k_proj", c.kv_size(), kv}, {"v_proj", c.kv_size(), kv}},
           Inputs(c.joined ? 2 * hidden : hidden), c.qkv_bias);
  const auto add_norm = [&](DeviceVector& norm, const char* name, int64_t size, Share share) {
    norm.add(list, TensorSlice::whole(at + name, {size}).some_cols(share.first, share.count), true,
             model_.norm_offset);
  };
  if (c.qk_norm == QkNorm::kEachHead) {
    add_norm(q_norm_, "q_norm.weight", c.head_dim, {0, c.head_dim});
    add_norm(k_norm_, "k_norm.weight", c.head_dim, {0, c.head_dim});
  } else if (c.qk_norm == QkNorm::kAllHeads) {
    add_norm(q_norm_, "q_norm.weight", c.q_size(), q);
    add_norm(k_norm_, "k_norm.weight", c.kv_size(), kv);
  }
  if (c.sinks) {
    const Share heads = shard.of(c.heads);
    sinks_.add(list,
               TensorSlice::whole(at + "sinks", {c.heads}).some_cols(heads.first, heads.count),
               false);
  }
  // The ranks' products are added up: a bias belongs to one of them.
  output_.add(list, at, {{"o_proj", hidden}}, {c.q_size(), q}, c.output_bias && shard.rank == 0);
}

void AttentionBlock::finish_loading(Backend& backend) {
  residual_.fold(backend, qkv_);
  qkv_.hand_bias(backend);
  output_.hand_bias(backend);
}

void AttentionBlock::carve(Arena& arena, DType activation, int64_t max_tokens) {
  qkv_rows_ = arena.take_matrix(activation, max_tokens, config_.qkv_size());
  attended_ = arena.take_matrix(activation, max_tokens, config_.q_size());
  if (config_.qk_norm == QkNorm::kAllHeads && !model_.shard.whole())
    squares_ = arena.take_matrix(DType::kF32, max_tokens, 2);
}

// A norm over the heads of all ranks asks for other sums before the stream is written again.
NextReader AttentionBlock::reader() const {
  const bool alone = !config_.joined && config_.qk_norm != QkNorm::kAllHeads;
  return alone ? residual_.one_reader() : NextReader::kAny;
}

LayerShape AttentionBlock::shape() const {
  return {.hidden_size = model_.hidden_size,
          .heads = config_.heads,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.head_dim,
          .rotary_dim = rope_.rotary_dim};
}

void AttentionBlock::project(Backend& backend, const Stream& s) const {
  const AttentionConfig& c = config_;
  const Tensor qkv = head_rows(qkv_rows_, s.rows);
  if (c.joined) {
    qkv_.store(backend, {.out = qkv, .x = head_rows(s.joined, s.rows), .weight = nullptr});
  } else {
    residual_.read(backend, s, qkv_, qkv, {});
  }
  if (c.qk_norm == QkNorm::kAllHeads) {
    norm_all_heads(backend, columns(qkv, 0, c.q_size()), columns(qkv, c.q_size(), c.kv_size()));
  }
}

void AttentionBlock::norm_all_heads(Backend& backend, const Tensor& q, const Tensor& k) const {
  const float eps = model_.norm_eps;
  if (model_.shard.whole()) {
    backend.rms_norm(q, q, q_norm_.data(), eps);
    backend.rms_norm(k, k, k_norm_.data(), eps);
    return;
  }
  const Tensor squares = head_rows(squares_, q.rows());
  const Tensor of_q = columns(squares, 0, 1), of_k = columns(squares, 1, 1);
  // A head of keys that several ranks hold counts once.
  const auto copies = static_cast<float>(model_.shard.kv_copies(whole_.kv_heads));
  backend.square_sums(of_q, q, 1);
  backend.square_sums(of_k, k, 1 / copies);
  backend.all_reduce(squares);
  backend.scale_by_sums(q, of_q, whole_.q_size(), q_norm_.data(), eps);
  backend.scale_by_sums(k, of_k, whole_.kv_size(), k_norm_.data(), eps);
}

void AttentionBlock::forward(Backend& backend, const StepContext& step, Stream& s,
                             bool narrow) const {
  project(backend, s);
  const bool each = config_.qk_norm == QkNorm::kEachHead;
  const QkvArgs qkv = {.qkv = head_rows(qkv_rows_, s.rows),
                       .q_norm = each ? q_norm_.data() : nullptr,
                       .k_norm = each ? k_norm_.data() : nullptr,
                       .norm_eps = model_.norm_eps,
                       .heads = config_.heads,
                       .kv = step.kv[kv_index_],
                       .rope = rope_};
  const Picks* picks = narrow ? step.picks : nullptr;
  if (picks != nullptr && picks->count == 0) {
    backend.rope_and_cache(qkv, step.slots, step.batch);
    s.rows = 0;
    return;
  }
  Tensor attended = head_rows(attended_, s.rows);
  backend.rope_and_attend(qkv,
                          {.out = attended,
                           .qkv = qkv.qkv,
                           .heads = config_.heads,
                           .kv = qkv.kv,
                           .scale = config_.scale,
                           .softcap = config_.softcap,
                           .window = config_.window,
                           .sinks = sinks_.data(),
                           .picks = picks},
                          step.slots, step.batch);
  // q, k and v are not needed any more.
  if (picks != nullptr) attended = pick_rows(backend, *picks, s, attended, qkv_rows_);
  residual_.write(backend, s, output_, attended);
}

}  // namespace inferd
