// How GGUF files of each architecture differ from Hugging Face checkpoints: names, the order of
// rows, what norms hold.
#pragma once
#include "core/checkpoint/checkpoint.h"

namespace inferd {

class GgufFile;

// Throws Error(kUnsupported) for architectures that are not read here.
Dialect gguf_dialect(const GgufFile& file);

}  // namespace inferd
