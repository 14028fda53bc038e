// Which format each linear weight of a model is kept in.
#pragma once
#include <functional>
#include <string>

#include "core/checkpoint/checkpoint.h"
#include "core/weight_format.h"

namespace inferd {

// From the canonical name of a linear, such as "model.layers.3.mlp.down_proj" or "lm_head", and the
// tensor, or part of one, that checkpoints store it as.
using FormatChoice =
    std::function<WeightFormat(const std::string& linear, const TensorSlice& stored)>;

// Throws Error(kUsage) when `option` is no value of inference.quantization.
void check_quantization(const std::string& option);
// What inference.quantization asks for: weights as they are, in the format that `stored` gives, or
// quantized while they are loaded, in a format that the backend keeps.
FormatChoice choose_formats(const std::string& option,
                            const std::function<bool(const WeightFormat& format)>& keeps,
                            std::function<WeightFormat(const TensorSlice& stored)> stored);

}  // namespace inferd
