// Qwen 2 and 2.5: bias on q, k and v only; a sliding window in some layers when the config switches
// it on.
#include "models/config/config.h"

namespace inferd {

ModelConfig configure_qwen2(const ConfigReader& r) {
  CommonConfig c = read_common(r);
  c.attention.qkv_bias = true;
  c.attention.output_bias = false;
  return with_windows(c, chosen_windows(r, c.num_layers));
}

}  // namespace inferd
