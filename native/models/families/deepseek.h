// What DeepSeek V2 and V3 share: latent attention, dense layers first and then experts with one
// shared MLP. How the experts are chosen is each one's own.
//
// Layers for multi-token prediction (num_nextn_predict_layers), whose tensors lie behind those of
// the other layers, are no part of the model and are not read.
#pragma once
#include <cmath>

#include "models/config/config.h"
#include "models/config/rope.h"

namespace inferd {

// Checkpoints hold the rows that are rotated together side by side when `interleaved`.
inline LatentAttentionConfig read_latent(const ConfigReader& r, ModelConfig& model,
                                         bool interleaved) {
  constexpr int64_t kMostDim = 1024;
  LatentAttentionConfig a;
  const auto integer = [&](const char* key, int64_t most) {
    return static_cast<int32_t>(r.integer(key, 1, most));
  };
  a.heads = integer("num_attention_heads", kMostDim);
  a.query_rank = static_cast<int32_t>(r.integer("q_lora_rank", 1, kMaxSize, 0));
  a.rank = integer("kv_lora_rank", kMostDim);
  a.nope_dim = integer("qk_nope_head_dim", kMostDim);
  a.rope_dim = integer("qk_rope_head_dim", kMostDim);
  a.value_dim = integer("v_head_dim", kMostDim);
  if (r.boolean("attention_bias", false)) r.unsupported("attention_bias is not supported");
  const RopeConfig rope = read_rope(r, a.rope_dim, model.max_positions);
  double scale = 1 / std::sqrt(static_cast<double>(a.query_dim()));
  if (rope.type == RopeConfig::Type::kYarn && rope.mscale_all_dim > 0) {
    const double larger = yarn_scale(rope.factor, rope.mscale_all_dim);
    scale *= larger * larger;
  }
  a.scale = static_cast<float>(scale);
  model.ropes = {rope};
  if (interleaved) {
    model.paired = {{"self_attn.q_proj", a.query_dim(), a.nope_dim},
                    {"self_attn.q_b_proj", a.query_dim(), a.nope_dim},
                    {"self_attn.kv_a_proj_with_mqa", a.cached_dim(), a.rank}};
  }
  return a;
}

// Layers with experts, chosen by `rule`, but for the first ones.
inline ModelConfig read_deepseek(const ConfigReader& r, bool interleaved, const RouterRule& rule,
                                 bool correction) {
  CommonConfig c = read_sizes(r);
  const LatentAttentionConfig attention = read_latent(r, c.model, interleaved);
  const ExpertsConfig experts{.rule = rule,
                              .intermediate_size = r.integer("moe_intermediate_size", 1, kMaxSize),
                              .shared_size = r.integer("n_shared_experts", 0, 64, 0) *
                                             r.integer("moe_intermediate_size", 1, kMaxSize),
                              .correction = correction,
                              .gate = c.mlp.gate};
  const int64_t dense = r.integer("first_k_dense_replace", 0, 1024, 0);
  const int64_t step = r.integer("moe_layer_freq", 1, 1024, 1);
  ModelConfig model = with_layers(c);
  for (LayerConfig& layer : model.layers) layer[0].block = attention;
  put_experts(model, experts, [&](int32_t layer) { return layer >= dense && layer % step == 0; });
  return model;
}

// `name` is what this architecture computes; a config may say so or say nothing.
inline void expect(const ConfigReader& r, const char* key, const std::string& name) {
  const std::string given = r.string(key, name);
  if (given != name)
    r.unsupported(std::string(key) + " " + in_quotes(given) + " is not supported, only " + name +
                  " is");
}

}  // namespace inferd
