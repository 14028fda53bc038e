// Llama 2, 3, 3.1, 3.2 and models of the same architecture: optional biases, optional tied
// embeddings, full attention.
#include "models/config/config.h"

namespace inferd {

ModelConfig configure_llama(const ConfigReader& r) { return with_layers(read_common(r)); }

}  // namespace inferd
