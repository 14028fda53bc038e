// Qwen 3 (dense): RMS norm of each head of q and k before rope; head_dim is independent of the
// hidden size.
#include "models/config/config.h"

namespace inferd {

ModelConfig configure_qwen3(const ConfigReader& r) {
  CommonConfig c = read_common(r);
  c.attention.qk_norm = QkNorm::kEachHead;
  return with_windows(c, chosen_windows(r, c.num_layers));
}

}  // namespace inferd
