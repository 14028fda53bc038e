// Experts on the device: routing, and the products of each expert with its tokens. Raw device
// pointers; see route.cu and expert_products.cu. What the arrays of a Routing hold says
// core/experts.h.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "core/experts.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"
#include "cuda/rows/coded_layout.h"

namespace inferd::cuda {

struct RouteParams {
  const float* logits;  // [tokens, experts], packed
  const float* correction;
  const int32_t* positions;
  RouterRule rule;
  int32_t tokens, first_held, held;
  Routing routing;
};

// Experts and weights of each token, then the pairs by expert. cudaErrorInvalidValue for a rule
// beyond kMostExperts or kMostChosen.
cudaError_t route_tokens(const RouteParams& params, const Launch& launch);

// Of pairs [first, first + count) in the order of Routing::pairs, or of those that there are.
struct ExpertProduct {
  const int32_t* offsets;  // [held + 1]
  const int32_t* pairs;    // of all pairs; null: row i of x belongs to pair first + i
  int32_t chosen, held;
  int32_t first, count;
  const void* x;     // rows of k values, row of pair p: p / chosen, or see `pairs`
  int64_t x_stride;  // elements
  const void* w;     // of expert e from row e * w_rows on; rows of k values, packed, or as codes
  int64_t w_rows;
  bool coded;          // in tiles
  CodedLayout layout;  // of w where it is coded; not paired, w_rows a multiple of 16
  const float* bias;   // [held, outputs], or [held, 2 outputs] when gated; or null
  void* y;             // row i is that of pair first + i; [count, outputs], packed
  int32_t outputs, k;
};

// y = gate(x w_gate^T + b_gate) * (x w_up^T + b_up) in the 16-bit type; of an expert's rows the
// first `outputs` are the gate's. k a multiple of 8, rows 16-byte aligned; where w is coded
// `outputs` a multiple of 16.
cudaError_t gated_expert_product(Half type, Gate gate, const ExpertProduct& p,
                                 const Launch& launch);
// y = x w^T + b in float32.
cudaError_t plain_expert_product(Half type, const ExpertProduct& p, const Launch& launch);

// sums[t] (+)= the sum of weights[t][i] * downs[places[t][i] - first] over those places within
// [first, first + count); `starts`: instead of adding to what sums holds. `ends`: the result goes
// to `out` in the 16-bit type, and sums holds nothing any more.
struct ExpertSum {
  float* sums;         // [tokens, cols]
  void* out;           // [tokens, cols], packed
  const float* downs;  // [count, cols]
  const float* weights;
  const int32_t* places;
  int32_t tokens, chosen, cols, first, count;
  bool starts, ends, adds;  // `adds`: in the end, to what `out` holds
};
cudaError_t sum_experts(Half type, const ExpertSum& p, const Launch& launch);

}  // namespace inferd::cuda
