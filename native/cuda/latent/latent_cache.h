// Rotation of the queries and keys of latent attention, the norm of what is cached, and the write
// to the cache, in one kernel; see latent_cache.cu.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/paged_kv.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

struct LatentCacheParams {
  const void* q;  // token i at q + i * q_stride; heads of nope_dim + rotary_dim values
  int64_t q_stride;
  const void* latent;  // token i at latent + i * latent_stride: rank + rotary_dim values
  int64_t latent_stride;
  void* queries;  // [tokens, heads, rank + rotary_dim], the last rotary_dim of which are written
  const float* norm;  // [rank]
  float norm_eps;
  const float* inv_freq;       // [rotary_dim / 2]
  float attention_factor;      // multiplies cos and sin
  PagedKv kv;                  // head_dim = rank + rotary_dim, kv_heads 1; `v` is not used
  void* cache;                 // kv.k
  const int32_t* token_slots;  // [tokens] slot of each token
  const int32_t* positions;    // [tokens]; negative: padding, nothing is read or written
  int32_t tokens, heads, nope_dim, rotary_dim;
};

// rotary_dim even and at most 256, head_dim at most 1024, else cudaErrorInvalidValue.
cudaError_t latent_cache(Half type, const LatentCacheParams& params, const Launch& launch);

}  // namespace inferd::cuda
