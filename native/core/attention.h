// Attention over cached keys and values: what the ops of backend.h are told.
#pragma once
#include <cstdint>

#include "core/kv_layer.h"
#include "core/plan/picks.h"
#include "core/rope_table.h"
#include "core/tensor.h"

namespace inferd {

// q/k/v of one layer before rope, written by the fused qkv projection: [tokens, (heads + 2
// kv_heads) * head_dim].
struct QkvArgs {
  Tensor qkv;                     // in/out: q part is rotated in place by rope_and_cache
  const float* q_norm = nullptr;  // [head_dim] or null
  const float* k_norm = nullptr;
  float norm_eps = 0;
  int32_t heads = 0;
  KvLayer kv;
  RopeTable rope;
};

struct AttentionArgs {
  Tensor out;  // [tokens, heads * head_dim]; of one array of keys and values heads * value_dim
  // As above, q rotated, which rope_and_attend sees to; of one array [tokens, heads * head_dim], q
  // alone.
  Tensor qkv;
  int32_t heads = 0;
  KvLayer kv;
  int32_t value_dim = 0;  // where kv.v is null: values are the first so many of each key
  float scale = 0;
  float softcap = 0;   // c > 0: a score s becomes c tanh(s / c)
  int32_t window = 0;  // 0 = full causal, else keys with position > query position - window
  // [heads] device, or null: a score of each head's that every softmax has beside those of the keys
  // and that no value belongs to (Xiao et al. 2023; learned, in gpt-oss)
  const float* sinks = nullptr;
  const Picks* picks = nullptr;  // of `out` only these rows are wanted; null: all
};

}  // namespace inferd
