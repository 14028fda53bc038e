// OLMo 2: norms behind the blocks only, and norms over all heads of q and of k together.
#include "models/config/config.h"

namespace inferd {

ModelConfig configure_olmo2(const ConfigReader& r) {
  CommonConfig c = read_common(r);
  c.attention.qk_norm = QkNorm::kAllHeads;
  return with_layers(c, {.before_attention = "",
                         .after_attention = "post_attention_layernorm",
                         .before_mlp = "",
                         .after_mlp = "post_feedforward_layernorm"});
}

}  // namespace inferd
