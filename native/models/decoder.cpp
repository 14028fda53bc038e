// See decoder.h.
//
//   hidden = embed(ids)
//   each layer:
//     hidden += output(attention(rope(qkv(norm(hidden)))))
//     hidden += down(silu(gate(norm(hidden))) * up(norm(hidden)))
//   logits = head(norm(hidden)), of chosen rows only
#include "models/decoder.h"

#include <cmath>
#include <utility>

#include "models/rope.h"

namespace inferd {
namespace {

// The first `rows` rows of a buffer.
Tensor head_rows(const Tensor& t, int64_t rows) {
  return Tensor::matrix(t.data, t.dtype, rows, t.cols());
}

}  // namespace

DecoderBuffers DecoderBuffers::carve(Arena& arena, const ModelConfig& c, DType activation,
                                     int64_t max_tokens, int64_t max_logit_rows) {
  DecoderBuffers b;
  b.hidden = arena.take_matrix(activation, max_tokens, c.hidden_size);
  b.normed = arena.take_matrix(activation, max_tokens, c.hidden_size);
  b.delta = arena.take_matrix(activation, max_tokens, c.hidden_size);
  const int64_t shared = arena.mark();
  b.qkv = arena.take_matrix(activation, max_tokens, c.qkv_size());
  b.attended = arena.take_matrix(activation, max_tokens, c.q_size());
  arena.rewind(shared);
  b.gate_up = arena.take_matrix(activation, max_tokens, 2 * c.intermediate_size);
  b.activated = arena.take_matrix(activation, max_tokens, c.intermediate_size);
  arena.rewind(shared);
  b.picked = arena.take_matrix(activation, max_logit_rows, c.hidden_size);
  b.logits = arena.take_matrix(DType::kF32, max_logit_rows, c.vocab_size);
  arena.rewind(arena.peak());
  return b;
}

Decoder::Decoder(const ModelConfig& config, Backend& backend, DType dtype, DType linear_dtype,
                 int64_t max_len)
    : config_(config), backend_(backend), list_{backend, dtype, {}, linear_dtype} {
  const ModelConfig& c = config_;
  embedding_.add(list_, "model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int32_t i = 0; i < c.num_layers; ++i) {
    layers_.push_back(std::make_unique<Layer>());
    describe(*layers_.back(), i);
  }
  final_norm_.add(list_, "model.norm.weight", c.hidden_size, true);
  head_.add_tensor(list_, c.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                   c.vocab_size, c.hidden_size,
                   // Errors of the head go into the logits as they are, so it keeps 8 bits.
                   linear_dtype == DType::kI4 ? DType::kI8 : linear_dtype);

  const RopeFrequencies frequencies = rope_frequencies(c.rope, c, max_len);
  const size_t bytes = frequencies.inv_freq.size() * sizeof(float);
  inv_freq_ = DeviceBuffer(backend, static_cast<int64_t>(bytes));
  backend.upload(inv_freq_.as<void>(), frequencies.inv_freq.data(), bytes);
  rope_ = {inv_freq_.as<float>(), frequencies.attention_factor, c.rope.rotary_dim};
}

void Decoder::describe(Layer& layer, int32_t index) {
  const ModelConfig& c = config_;
  const std::string at = "model.layers." + std::to_string(index) + ".";
  const std::string attn = at + "self_attn.";
  layer.input_norm.add(list_, at + "input_layernorm.weight", c.hidden_size, true);
  if (c.fused_qkv) {
    layer.qkv.add(list_, attn + "qkv_proj", c.qkv_size(), c.hidden_size, c.qkv_bias);
  } else {
    layer.qkv.add(list_, attn + "q_proj", c.q_size(), c.hidden_size, c.qkv_bias);
    layer.qkv.add(list_, attn + "k_proj", c.kv_size(), c.hidden_size, c.qkv_bias);
    layer.qkv.add(list_, attn + "v_proj", c.kv_size(), c.hidden_size, c.qkv_bias);
  }
  if (c.qk_norm) {
    layer.q_norm.add(list_, attn + "q_norm.weight", c.head_dim, true);
    layer.k_norm.add(list_, attn + "k_norm.weight", c.head_dim, true);
  }
  layer.output.add(list_, attn + "o_proj", c.hidden_size, c.q_size(), c.output_bias);
  layer.post_norm.add(list_, at + "post_attention_layernorm.weight", c.hidden_size, true);
  if (c.fused_gate_up) {
    layer.gate_up.add(list_, at + "mlp.gate_up_proj", 2 * c.intermediate_size, c.hidden_size,
                      c.mlp_bias);
  } else {
    layer.gate_up.add(list_, at + "mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
    layer.gate_up.add(list_, at + "mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
  }
  layer.down.add(list_, at + "mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias);
}

void Decoder::finish_loading() {
  for (const auto& layer : layers_) {
    layer->qkv.fold(backend_, layer->input_norm);
    layer->gate_up.fold(backend_, layer->post_norm);
    for (const Linear* linear : {&layer->qkv, &layer->output, &layer->gate_up, &layer->down})
      linear->hand_bias(backend_);
  }
}

Tensor Decoder::forward(const DecoderBuffers& b, const std::vector<KvLayer>& kv,
                        const SlotTables& slots, const StepBatch& batch, const Picks* picks) const {
  const int64_t tokens = batch.num_tokens;
  backend_.embed(head_rows(b.hidden, tokens), embedding_.tensor(), batch.ids);
  const size_t last = layers_.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    project(*layers_[i], b, kv[i], slots, batch);
    attend(b, kv[i], config_.windows[i], slots, batch, nullptr);
    add_to_residual(layers_[i]->output, b, head_rows(b.attended, tokens));
    mlp(*layers_[i], b, tokens);
  }
  const Layer& layer = *layers_[last];
  project(layer, b, kv[last], slots, batch);
  const int64_t rows = picks == nullptr ? tokens : picks->count;
  if (rows == 0) return head_rows(b.normed, 0);
  attend(b, kv[last], config_.windows[last], slots, batch, picks);
  const DecoderBuffers end = picks == nullptr ? b : picked(b, tokens, *picks);
  const Tensor states = head_rows(end.normed, rows);
  add_to_residual(layer.output, end, head_rows(end.attended, rows));
  mlp(layer, end, rows);
  backend_.rms_norm(states, head_rows(end.hidden, rows), final_norm_.data(), config_.norm_eps);
  return states;
}

// The picked rows of the residual stream and of the attention in front of buffers of their own:
// those of `normed` and `qkv`, which hold nothing any more.
DecoderBuffers Decoder::picked(const DecoderBuffers& b, int64_t tokens, const Picks& picks) const {
  DecoderBuffers end = b;
  std::swap(end.hidden, end.normed);
  const Tensor& attended = b.attended;
  end.attended = Tensor::matrix(b.qkv.data, attended.dtype, attended.rows(), attended.cols());
  const auto gather = [&](const Tensor& to, const Tensor& from) {
    backend_.gather_rows(head_rows(to, picks.count), head_rows(from, tokens), picks.rows,
                         picks.count);
  };
  gather(end.hidden, b.hidden);
  gather(end.attended, attended);
  return end;
}

NormArgs Decoder::norm(const DeviceVector& weight, const DecoderBuffers& b, int64_t tokens) const {
  return {.x = head_rows(b.hidden, tokens),
          .scratch = head_rows(b.normed, tokens),
          .weight = weight.data(),
          .eps = config_.norm_eps};
}

// hidden += linear(x), summed over the ranks.
void Decoder::add_to_residual(const Linear& linear, const DecoderBuffers& b,
                              const Tensor& x) const {
  const Tensor hidden = head_rows(b.hidden, x.rows()), delta = head_rows(b.delta, x.rows());
  if (backend_.info().ranks == 1) {
    linear.apply_add(backend_, hidden, delta, x);
    return;
  }
  linear.apply(backend_, delta, x);
  backend_.all_reduce(delta);
  backend_.add(hidden, delta);
}

// hidden -> qkv, and the keys and values in the cache
void Decoder::project(const Layer& layer, const DecoderBuffers& b, const KvLayer& kv,
                      const SlotTables& slots, const StepBatch& batch) const {
  const int64_t tokens = batch.num_tokens;
  const Tensor qkv = head_rows(b.qkv, tokens);
  layer.qkv.apply(backend_, norm(layer.input_norm, b, tokens), qkv);
  backend_.rope_and_cache({.qkv = qkv,
                           .q_norm = layer.q_norm.data(),
                           .k_norm = layer.k_norm.data(),
                           .norm_eps = config_.norm_eps,
                           .heads = config_.num_heads,
                           .kv = kv,
                           .rope = rope_},
                          slots, batch);
}

// qkv and cache -> attended
void Decoder::attend(const DecoderBuffers& b, const KvLayer& kv, int32_t window,
                     const SlotTables& slots, const StepBatch& batch, const Picks* picks) const {
  backend_.attention(
      {.out = head_rows(b.attended, batch.num_tokens),
       .qkv = head_rows(b.qkv, batch.num_tokens),
       .heads = config_.num_heads,
       .kv = kv,
       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
       .window = window,
       .picks = picks},
      slots, batch);
}

// hidden -> added to hidden
void Decoder::mlp(const Layer& layer, const DecoderBuffers& b, int64_t tokens) const {
  const Tensor activated = head_rows(b.activated, tokens);
  layer.gate_up.apply_gated(backend_, norm(layer.post_norm, b, tokens), activated,
                            head_rows(b.gate_up, tokens));
  add_to_residual(layer.down, b, activated);
}

Tensor Decoder::logits(const DecoderBuffers& b, const Tensor& states, int32_t first,
                       int32_t count) const {
  const Tensor logits = head_rows(b.logits, count);
  const int64_t skipped = first * states.cols() * dtype_bytes(states.dtype);
  head_.apply(backend_, logits,
              Tensor::matrix(states.as<std::byte>() + skipped, states.dtype, count, states.cols()));
  return logits;
}

Tensor Decoder::logits(const DecoderBuffers& b, const Tensor& states, const int32_t* rows,
                       int32_t count) const {
  const Tensor picked = head_rows(b.picked, count);
  backend_.gather_rows(picked, states, rows, count);
  return logits(b, picked, 0, count);
}

}  // namespace inferd
