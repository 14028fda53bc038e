// See stored_formats.h. The types of GGUF files come from their table; of safetensors what the
// usual groups of each method come down to, which the sources of this folder choose weight by
// weight.
#include "core/formats/stored_formats.h"

#include "core/checkpoint/block_types.h"

namespace inferd {

std::vector<StoredFormat> stored_formats() {
  std::vector<StoredFormat> all;
  for (const BlockType& type : block_types())
    if (type.decode != nullptr) all.push_back({type.name, type.coded});
  all.push_back({"GPTQ", kCodedInt4Minima});
  all.push_back({"GPTQ with act-order", kCodedInt4Minima});
  all.push_back({"AWQ", kCodedInt4Minima});
  all.push_back({"compressed-tensors int4", kCodedInt4Minima});
  all.push_back({"compressed-tensors int8", kCodedInt8});
  all.push_back({"compressed-tensors MXFP4 and NVFP4", kCodedFloat4});
  all.push_back({"FP8", kFloat8Rows});
  return all;
}

}  // namespace inferd
