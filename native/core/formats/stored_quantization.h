// What a checkpoint says of how its weights were quantized, as far as its tensors do not tell.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/weight_format.h"

namespace inferd {

struct StoredQuantization {
  enum class Method { kNone, kGptq, kAwq, kFloat8, kCompressedTensors, kMxfp4 };
  Method method = Method::kNone;
  bool zeros_less_one = true;  // GPTQ: zeros are stored as one less, as all but its version 2 do
  int64_t group_size = 0;      // GPTQ: columns of a group, of most weights; 0: not said
  // Of float8 with a scale for each block; 0: no blocks.
  int64_t block_rows = 0, block_cols = 0;
  // Of a checkpoint that is only thought of (load_dummy): the format that most of its linears would
  // be kept in, without scales where they would be widened, and the modules that are not quantized.
  // Codes with a scale for 0 columns have one for a whole row of the file.
  WeightFormat usual = kFormatF32;
  std::vector<std::string> plain_modules;
};

}  // namespace inferd
