// Attention of all heads to one vector a token, which is key and value at once; see
// latent_attention.cu.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/attention/paged_kv.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

struct LatentAttentionParams {
  const void* q;               // [tokens, heads, kv.head_dim], 16-byte aligned
  void* out;                   // [tokens, heads, value_dim]
  PagedKv kv;                  // kv_heads 1; `v` is not used
  const int32_t* token_slots;  // [tokens] slot of each token
  const int32_t* positions;    // [tokens]; negative: padding, no output
  int32_t tokens, heads, value_dim;
  int32_t window;  // 0: all keys, else keys with position > query position - window
  int32_t splits;  // latent_attention_splits(...): into how many parts keys are cut
  float scale;
  float* partials;  // latent_attention_partial_bytes(...), where splits > 1
};

// Why it cannot: "" when it can.
const char* latent_attention_refuses(int32_t head_dim, int32_t value_dim);

// Parts that fill the device where tokens are few, of params whose `splits` are still to be said; a
// longer context has room for more. Any number is correct, so that recorded launches keep theirs
// while lengths change.
int32_t latent_attention_splits(const LatentAttentionParams& params, int32_t max_context,
                                int32_t sm_count);
// For any number of tokens.
size_t latent_attention_partial_bytes(int32_t value_dim, int32_t heads, int32_t sm_count);

// cudaErrorInvalidValue for shapes that it refuses.
cudaError_t latent_attention(Half type, const LatentAttentionParams& params, const Launch& launch);

}  // namespace inferd::cuda
