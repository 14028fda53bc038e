// Phi-3 and Phi-3.5 (dense): q, k, v stored as one tensor, gate and up as another; partial
// rotation; longrope in the long variants.
#include "models/config.h"

namespace inferd {

ModelConfig configure_phi3(const ConfigReader& r) {
  ModelConfig c = read_common(r);
  c.fused_qkv = true;
  c.fused_gate_up = true;
  c.windows = uniform_windows(r, c.num_layers, 0);
  return c;
}

}  // namespace inferd
