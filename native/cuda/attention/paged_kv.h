// The paged cache of one layer as the attention kernels see it, and a piece of a sequence's
// queries. Host code; raw device pointers that the caller keeps alive until the launched work is
// done.
#pragma once
#include <cstdint>

namespace inferd::cuda {

enum class KvType {
  kActivation,  // 16-bit, the type of the queries
  kFloat8,      // e4m3; scales are in those of scores and values
  kInt8,        // a scale a row
};

// Sequence `slot` has token p in block t = block_tables[slot * max_blocks + p / block_size], as row
// kv_head * block_size + p % block_size of it. A block is [kv_heads, block_size, head_dim] of the
// cache's type, and of int8 then [kv_heads, block_size] f32: key = stored * scale of its row.
// Table entries past the sequence's last token, and those wholly before its window, are never used.
struct PagedKv {
  const void* k;  // [num_blocks] blocks, 16-byte aligned
  const void* v;
  KvType type;
  int64_t block_bytes;          // a multiple of 16, below 2^31; of k's blocks and of v's
  const int32_t* block_tables;  // [slots, max_blocks]
  int32_t max_blocks, num_blocks, kv_heads, block_size, head_dim;
};

}  // namespace inferd::cuda
