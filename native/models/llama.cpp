// Llama 2, 3, 3.1, 3.2 and models of the same architecture: optional biases, optional tied
// embeddings, full attention.
#include "models/config.h"

namespace inferd {

ModelConfig configure_llama(const ConfigReader& r) {
  ModelConfig c = read_common(r);
  c.qkv_bias = c.output_bias = r.boolean("attention_bias", false);
  c.mlp_bias = r.boolean("mlp_bias", false);
  return c;
}

}  // namespace inferd
