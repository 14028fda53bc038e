// The paged cache of one layer as the attention kernels see it, and a piece of a sequence's
// queries. Host code; raw device pointers that the caller keeps alive until the launched work is
// done.
#pragma once
#include <cstdint>

namespace inferd::cuda {

enum class KvType {
  kActivation,  // 16-bit, the type of the queries
  kFloat8,      // e4m3
  kInt8,
};

// Sequence `slot` has token p in block t = block_tables[slot * max_blocks + p / block_size], at
//   k + ((t * kv_heads + kv_head) * block_size + p % block_size) * head_dim.
// Table entries past the sequence's last token, and those wholly before its window, are never used.
struct PagedKv {
  const void* k;  // [num_blocks, kv_heads, block_size, head_dim], 16-byte aligned
  const void* v;
  KvType type;
  const float* k_scale;  // 8-bit types: key = stored * k_scale[kv_head * scale_stride]; null is 1
  const float* v_scale;
  int32_t scale_stride;         // 0: one scale for all heads, 1: one a kv head
  const int32_t* block_tables;  // [slots, max_blocks]
  int32_t max_blocks, num_blocks, kv_heads, block_size, head_dim;
};

}  // namespace inferd::cuda
