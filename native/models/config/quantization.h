// Which format each linear weight of a model is kept in.
#pragma once
#include <functional>
#include <string>

#include "core/weight_format.h"

namespace inferd {

// From the canonical name of a linear, such as "model.layers.3.mlp.down_proj" or "lm_head", also
// where checkpoints store it as part of another tensor.
using FormatChoice = std::function<WeightFormat(const std::string& linear)>;

// Throws Error(kUsage) when `option` is no value of inference.quantization.
void check_quantization(const std::string& option);
// What inference.quantization asks for: weights as they are, in `dtype`, or quantized while they
// are loaded.
FormatChoice choose_formats(const std::string& option, DType dtype);

}  // namespace inferd
