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

// Where a row of such halves lies in a checkpoint that holds rotated rows in pairs, side by side:
// of each `head_rows` those from `first` on.
constexpr int64_t row_in_pairs(int64_t row, int64_t head_rows, int64_t first) {
  const int64_t at = row % head_rows - first, half = (head_rows - first) / 2;
  if (at < 0) return row;
  return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

}  // namespace inferd
