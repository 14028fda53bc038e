// What a backend says of itself, and the sizes of a model and of steps that it is told of.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"

namespace inferd {

struct BackendInfo {
  std::string name;  // "cpu avx512 x2"
  DType activation;
  int64_t total_bytes;
  int64_t free_bytes;
  bool host_memory;        // device pointers can be read by the host
  bool graphs = false;     // run_graph records and replays
  bool narrow_kv = false;  // keys and values may be kF8 and kI8
  bool drafters = false;   // networks that draft: gather_drafts and the ops around it
  // > 0: weights of codes may have columns in an order of their own (CodedRows::order), one for so
  // many rows at least
  int64_t ordered_rows = 0;
  bool spreads_experts = false;  // gather_rows and scatter_sums
  bool float4_linears = false;   // what it keeps in kCodedFloat4 may be other weights than experts'
};

// The sizes of a layer that kernels may not take; 0 where the layer has no such thing.
struct LayerShape {
  int64_t hidden_size = 0, intermediate_size = 0;
  int32_t heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
  int32_t experts = 0;         // intermediate_size is then that of one of them
  bool coded_experts = false;  // whose weights are codes in blocks (is_coded())
  bool gated_rows = false;     // the layer calls gate_rows
  int32_t value_dim = 0;       // > 0: values are the first so many of the keys (core/latent.h)
};

// The largest steps an engine will run: a backend sizes its own step memory by it.
struct StepShape {
  int32_t max_rows, max_tokens, max_context, max_logit_rows, block_size;
  int64_t vocab_size;
  int64_t head_rows;  // of the vocabulary, that this rank has logits of
  std::span<const LayerShape> layers;
};

}  // namespace inferd
