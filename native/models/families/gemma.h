// What Gemma 2 and 3 share: norms before and after each block that multiply by one plus their
// weight, scaled embeddings, a scale of scores of their own, and layers with a window in turn with
// full ones.
#pragma once
#include <cmath>
#include <functional>
#include <vector>

#include "models/config/config.h"

namespace inferd {

inline CommonConfig read_gemma(const ConfigReader& r) {
  CommonConfig c = read_common(r, true);
  c.model.norm_offset = 1;
  c.model.embedding_scale = std::sqrt(static_cast<float>(c.model.hidden_size));
  const double query_scalar = r.number("query_pre_attn_scalar", 1e-3, 1e6, 256.0);
  c.attention.scale = static_cast<float>(1 / std::sqrt(query_scalar));
  return c;
}

// Every `period`-th layer is full, unless `layer_types` says otherwise; `vary` changes what else
// the layers with a window have of their own.
inline ModelConfig with_gemma_layers(const ConfigReader& r, const CommonConfig& c, int64_t period,
                                     const std::function<void(AttentionConfig&)>& vary = {}) {
  const std::vector<int32_t> windows = uniform_windows(r, c.num_layers, 4096);
  const std::vector<bool> sliding = sliding_layers(r, c.num_layers, period);
  const LayerNorms norms = {.after_attention = "post_attention_layernorm",
                            .before_mlp = "pre_feedforward_layernorm",
                            .after_mlp = "post_feedforward_layernorm"};
  return with_layers(c, norms, [&](int32_t i, AttentionConfig& a) {
    const auto at = static_cast<size_t>(i);
    if (!sliding[at]) return;
    a.window = windows[at];
    if (vary) vary(a);
  });
}

}  // namespace inferd
