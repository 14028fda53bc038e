// Architecture names of config.json -> the function that reads such a config. A new model is one
// file and one line in registry.cpp.
#pragma once
#include <string>

#include "models/config/config.h"

namespace inferd {

// Fills a ModelConfig from config.json; throws Error(kBadModel) or Error(kUnsupported).
using ConfigureModel = ModelConfig (*)(const ConfigReader& reader);

// Reads <path>/config.json, or `given`, its text, where a model has no such file, with the
// architecture that `architectures[0]`, or else `model_type`, names. An unknown one is
// Error(kUnsupported) and names the known ones.
ModelConfig read_model_config(const std::string& path, const std::string& given = "");

}  // namespace inferd
