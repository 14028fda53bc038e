// Mistral: Llama's shape with a sliding attention window in every layer. `sliding_window: null` is
// full attention; a config without the key means 4096, the default of the configuration class that
// such files were written with.
#include "models/config/config.h"

namespace inferd {

ModelConfig configure_mistral(const ConfigReader& r) {
  const CommonConfig c = read_common(r);
  return with_windows(c, uniform_windows(r, c.num_layers, 4096));
}

}  // namespace inferd
