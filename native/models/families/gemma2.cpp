// Gemma 2: alternating windows, soft caps on scores and logits, norms before and after each block
// that multiply by one plus their weight, scaled embeddings, a tanh-GELU gate.
#include "models/families/gemma.h"

namespace inferd {

ModelConfig configure_gemma2(const ConfigReader& r) {
  CommonConfig c = read_gemma(r);
  const auto cap = [&](const char* key, double fallback) {
    return static_cast<float>(r.number(key, 0.1, 1e6, r.mentions(key) ? 0 : fallback));
  };
  c.model.logit_softcap = cap("final_logit_softcapping", 30);
  c.attention.softcap = cap("attn_logit_softcapping", 50);
  return with_gemma_layers(r, c, 2);
}

}  // namespace inferd
