// Phi-3 and Phi-3.5 (dense): q, k, v stored as one tensor, gate and up as another; partial
// rotation; longrope in the long variants.
#include "models/config/config.h"

namespace inferd {

ModelConfig configure_phi3(const ConfigReader& r) {
  CommonConfig c = read_common(r);
  c.model.stacked = {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
                     {"gate_up_proj", {"gate_proj", "up_proj"}}};
  return with_windows(c, uniform_windows(r, c.num_layers, 0));
}

}  // namespace inferd
