// Granite 3 (dense): Llama's shape with multipliers for embeddings, scores, what blocks add, and
// logits.
#include "models/config/config.h"

namespace inferd {

ModelConfig configure_granite(const ConfigReader& r) {
  CommonConfig c = read_common(r);
  const auto factor = [&](const char* key) {
    return static_cast<float>(r.number(key, 1e-6, 1e6, 1.0));
  };
  c.model.embedding_scale = factor("embedding_multiplier");
  c.model.residual_scale = factor("residual_multiplier");
  c.model.logit_scale = 1 / factor("logits_scaling");
  c.attention.scale = factor("attention_multiplier");
  return with_layers(c);
}

}  // namespace inferd
