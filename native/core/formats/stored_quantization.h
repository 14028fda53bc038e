// What a checkpoint says of how its weights were quantized, as far as its tensors do not tell.
#pragma once
#include <cstdint>

namespace inferd {

struct StoredQuantization {
  enum class Method { kNone, kGptq, kAwq, kFloat8, kCompressedTensors, kMxfp4 };
  Method method = Method::kNone;
  bool zeros_less_one = true;  // GPTQ: zeros are stored as one less, as all but its version 2 do
  int64_t group_size = 0;      // GPTQ: columns of a group, of most weights; 0: not said
  // Of float8 with a scale for each block; 0: no blocks.
  int64_t block_rows = 0, block_cols = 0;
};

}  // namespace inferd
