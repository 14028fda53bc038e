// Paged keys and values of one layer: what a model asks for, and where it lies. Layers of a model
// may differ.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace inferd {

// What a checkpoint divides keys and values by before they are stored in 8-bit floats: [kv_heads]
// each, or empty where that is 1. An array that both are made from has those of the keys.
struct KvScales {
  std::vector<float> keys{}, values{};

  // The one of all heads, or 0 where heads differ.
  static float common(const std::vector<float>& scales) {
    for (const float scale : scales)
      if (scale != scales.front()) return 0;
    return scales.empty() ? 1 : scales.front();
  }
};

// What a layer keeps of each token: in each of `arrays` arrays head_dim values for each of kv_heads
// heads.
struct KvSpec {
  int32_t kv_heads = 0, head_dim = 0;
  int32_t arrays = 2;     // keys and values; 1: one array that both are made from
  int32_t all_heads = 0;  // of keys and values, those of the other ranks too
  std::string name{};     // of the attention, "model.layers.3.self_attn."; "": it has no scales
  KvScales scales{};
};

// An array is [num_blocks] blocks, and a block is [kv_heads, block_size, head_dim] of `dtype`: f32,
// f16, bf16, kF8 (e4m3 of what is left after division by a scale of the layer) or kI8, whose blocks
// end with an f32 scale a row, [kv_heads, block_size]: codes are -127..127, and the scale is the
// largest absolute value / 127. Whoever copies blocks copies block_bytes() of each.
struct KvLayer {
  void* k;
  void* v;  // null where the layer has one array
  DType dtype;
  int32_t num_blocks, block_size, kv_heads, head_dim;
  const KvScales* scales = nullptr;  // of kF8, on the host as long as the layer; null: 1

  // Bytes to the vector of (block, kv head, place in the block).
  int64_t offset(int64_t block, int64_t head, int64_t place) const {
    return block * block_bytes() + (head * block_size + place) * head_dim * dtype_bytes(dtype);
  }
  // Of kI8, bytes to its scale.
  int64_t scale_offset(int64_t block, int64_t head, int64_t place) const {
    const int64_t codes = int64_t{kv_heads} * block_size * head_dim;
    return block * block_bytes() + codes + (head * block_size + place) * 4;
  }
  int64_t block_bytes() const {
    const int64_t rows = int64_t{kv_heads} * block_size;
    const int64_t bytes = rows * head_dim * dtype_bytes(dtype);
    return dtype == DType::kI8 ? (bytes + rows * 4 + 15) / 16 * 16 : bytes;
  }
  float key_scale(int32_t head) const {
    return scales == nullptr || scales->keys.empty() ? 1 : scales->keys[static_cast<size_t>(head)];
  }
  float value_scale(int32_t head) const {
    if (v == nullptr) return key_scale(head);
    return scales == nullptr || scales->values.empty() ? 1
                                                       : scales->values[static_cast<size_t>(head)];
  }
};

}  // namespace inferd
