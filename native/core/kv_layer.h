// Paged keys and values of one layer: what a model asks for, and where it lies. Layers of a model
// may differ.
#pragma once
#include <cstdint>

#include "core/tensor.h"

namespace inferd {

// What a layer keeps of each token: in each of `arrays` arrays head_dim values for each of kv_heads
// heads.
struct KvSpec {
  int32_t kv_heads = 0, head_dim = 0;
  int32_t arrays = 2;  // keys and values; 1: one array that both are made from
};

// An array is [num_blocks] blocks, and a block is [kv_heads, block_size, head_dim] of `dtype`: f32,
// f16, bf16, kF8 (e4m3, as it is) or kI8, whose blocks end with an f32 scale a row, [kv_heads,
// block_size]. Whoever copies blocks copies block_bytes() of each.
struct KvLayer {
  void* k;
  void* v;  // null where the layer has one array
  DType dtype;
  int32_t num_blocks, block_size, kv_heads, head_dim;

  // Bytes to the vector of (block, kv head, place in the block), of types without scales.
  int64_t offset(int64_t block, int64_t head, int64_t place) const {
    return ((block * kv_heads + head) * block_size + place) * head_dim * dtype_bytes(dtype);
  }
  int64_t block_bytes() const {
    const int64_t rows = int64_t{kv_heads} * block_size;
    const int64_t bytes = rows * head_dim * dtype_bytes(dtype);
    return dtype == DType::kI8 ? (bytes + rows * 4 + 15) / 16 * 16 : bytes;
  }
};

}  // namespace inferd
