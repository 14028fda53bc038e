// Latent attention by wgmma: see latent_attention_sm90.cu.
#pragma once
#include "cuda/latent/latent_attention.h"

namespace inferd::cuda {

// Whether it takes these keys on the current device.
bool latent_attention_sm90_takes(const PagedKv& kv, int32_t value_dim);

// Heads of one token that a block takes.
int32_t latent_attention_sm90_heads(int32_t heads);

// As latent_attention() without putting parts together; cudaErrorInvalidValue for what it does not
// take.
cudaError_t latent_attention_sm90(Half type, const LatentAttentionParams& params,
                                  const Launch& launch);

}  // namespace inferd::cuda
