// Qwen 3 (dense): RMS norm of each head of q and k before rope; head_dim is independent of the
// hidden size.
#include "models/config.h"

namespace inferd {

ModelConfig configure_qwen3(const ConfigReader& r) {
  ModelConfig c = read_common(r);
  c.qk_norm = true;
  c.qkv_bias = c.output_bias = r.boolean("attention_bias", false);
  c.windows = chosen_windows(r, c.num_layers);
  return c;
}

}  // namespace inferd
