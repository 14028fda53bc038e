// Latent attention: what the ops of backend.h are told (DeepSeek-V2, 2024).
//
// The cache keeps one vector a token, [c | k_rope], from which the keys and values of all heads are
// made: k_h = [W_k,h c | k_rope], v_h = W_v,h c. Neither is ever made: as q . W_k,h c is
// (W_k,h^T q) . c, heads attend with [W_k,h^T q_nope | q_rope] over the cache itself, whose first
// `rank` values are also the values, and W_v,h goes over what comes out.
//
//   head_linear             W_k,h^T q_nope of each head
//   latent_rope_and_cache   rotates q_rope and k_rope, norms c, writes the cache
//   attention               kv.v is null, value_dim = rank
//   head_linear             W_v,h of each head
#pragma once
#include <cstdint>

#include "core/kv_layer.h"
#include "core/matrix_stack.h"
#include "core/rope_table.h"
#include "core/tensor.h"

namespace inferd {

struct PackedWeight;

// out_h = x_h W_h^T for each head h.
struct HeadLinearArgs {
  Tensor out;  // [tokens, >= heads * out_step]: columns h * out_step .. + outputs are written
  Tensor x;    // [tokens, >= heads * x_step]: columns h * x_step .. + weight.cols are read
  const PackedWeight* weight;  // W_h is rows h * stacked_rows(outputs) .. + outputs
  int32_t heads = 0;
  int64_t outputs = 0;
  int64_t out_step = 0, x_step = 0;
};

struct LatentCacheArgs {
  // [tokens, heads * (nope_dim + rotary_dim)]: the rotated part of a head is behind the other
  Tensor q;
  Tensor latent;   // [tokens, kv.head_dim]: c before its norm, then k_rope; overwritten
  Tensor queries;  // [tokens, heads * kv.head_dim]: q_rope goes behind the first rank of each head
  const float* norm;  // [rank] device, of c
  float norm_eps = 0;
  int32_t heads = 0, nope_dim = 0;
  KvLayer kv;  // head_dim = rank + rope.rotary_dim
  RopeTable rope;

  int32_t rank() const { return kv.head_dim - rope.rotary_dim; }
};

}  // namespace inferd
