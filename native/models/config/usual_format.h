// What load_dummy takes the weights of a quantized checkpoint for, whose tensors it does not have:
// the format that core/formats finds for most linears of such checkpoints.
#pragma once
#include <string>
#include <vector>

#include "core/checkpoint/json.h"
#include "core/formats/stored_quantization.h"

namespace inferd {

// `quantization` is the object quantization_config, of which `q` tells the method and the blocks.
// What says nothing, or what real checkpoints do not say, is left aside: nothing is refused here.
WeightFormat usual_format(const Json& quantization, const StoredQuantization& q);
// The modules that it names as not quantized; patterns are left out.
std::vector<std::string> plain_modules(const Json& quantization);

}  // namespace inferd
