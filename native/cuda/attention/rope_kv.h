// Query and key normalisation, rotary embedding and the write of keys and values to the paged
// cache, in one kernel; see rope_kv.cu.
#pragma once
#include <cstdint>

#include "cuda/attention/paged_kv.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

struct RopeKvParams {
  void* qkv;  // [tokens, (heads + 2 kv_heads) * head_dim], q is rotated in place; 16-byte aligned
  const float* q_norm;  // [head_dim] or null
  const float* k_norm;  // [head_dim] or null
  float norm_eps;
  const float* inv_freq;   // [rotary_dim / 2]
  float attention_factor;  // multiplies cos and sin
  void* k_cache;           // as in PagedKv
  void* v_cache;
  KvType kv_type;
  float k_scale = 1, v_scale = 1;  // of kFloat8: what is stored is divided by them
  int64_t block_bytes;
  const int32_t* block_tables;  // [slots, max_blocks]
  const int32_t* token_slots;   // [tokens] slot of each token
  const int32_t* positions;     // [tokens]; negative: padding, nothing is read or written
  int32_t max_blocks, tokens, heads, kv_heads, head_dim, rotary_dim, block_size;
};

// head_dim a multiple of 8 up to 256, rotary_dim a multiple of 16 from 0 (nothing is rotated) up to
// head_dim, else cudaErrorInvalidValue. An early start reads positions, token_slots and
// block_tables before its wait: they must be settled, as launch.cuh says.
cudaError_t rope_kv(Half type, const RopeKvParams& params, const Launch& launch);

}  // namespace inferd::cuda
