// Reads what config.json says of weights that are quantized already.
#pragma once
#include "core/formats/stored_quantization.h"
#include "models/config/config.h"

namespace inferd {

// `quantization` is the object quantization_config. Throws Error(kUnsupported) with one sentence
// for methods that are not read here.
StoredQuantization read_stored_quantization(const ConfigReader& quantization);

}  // namespace inferd
