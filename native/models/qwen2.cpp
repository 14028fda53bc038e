// Qwen 2 and 2.5: bias on q, k and v only; a sliding window in some layers when the config switches
// it on.
#include "models/config.h"

namespace inferd {

ModelConfig configure_qwen2(const ConfigReader& r) {
  ModelConfig c = read_common(r);
  c.qkv_bias = true;
  c.windows = chosen_windows(r, c.num_layers);
  return c;
}

}  // namespace inferd
