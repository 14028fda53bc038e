// Gemma 2: alternating windows, soft caps on scores and logits, norms before and after each block
// that multiply by one plus their weight, scaled embeddings, a tanh-GELU gate.
#include <cmath>

#include "models/config/config.h"

namespace inferd {

ModelConfig configure_gemma2(const ConfigReader& r) {
  CommonConfig c = read_common(r, true);
  const auto cap = [&](const char* key, double fallback) {
    return static_cast<float>(r.number(key, 0.1, 1e6, r.mentions(key) ? 0 : fallback));
  };
  c.model.norm_offset = 1;
  c.model.embedding_scale = std::sqrt(static_cast<float>(c.model.hidden_size));
  c.model.logit_softcap = cap("final_logit_softcapping", 30);
  c.attention.softcap = cap("attn_logit_softcapping", 50);
  const double query_scalar = r.number("query_pre_attn_scalar", 1e-3, 1e6, 256.0);
  c.attention.scale = static_cast<float>(1 / std::sqrt(query_scalar));
  const std::vector<int32_t> windows = uniform_windows(r, c.num_layers, 4096);
  const std::vector<bool> sliding = sliding_layers(r, c.num_layers, 2);
  const LayerNorms norms = {.after_attention = "post_attention_layernorm",
                            .before_mlp = "pre_feedforward_layernorm",
                            .after_mlp = "post_feedforward_layernorm"};
  return with_layers(c, norms, [&](int32_t i, AttentionConfig& a) {
    const auto at = static_cast<size_t>(i);
    a.window = sliding[at] ? windows[at] : 0;
  });
}

}  // namespace inferd
