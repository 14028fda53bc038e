// How positions rotate queries and keys, as backends take it.
#pragma once
#include <cstdint>

namespace inferd {

struct RopeTable {
  const float* inv_freq;   // [head_dim / 2] device, scaling already applied
  float attention_factor;  // multiplies cos and sin
  // <= head_dim; half-split pairing (i, i + rotary_dim / 2). 0: nothing is rotated.
  int32_t rotary_dim;
};

}  // namespace inferd
