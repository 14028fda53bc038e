// Mixture of experts: what the ops of backend.h are told, and what they leave behind.
//
//   logits = x W_router^T            a product like any other
//   route                            the experts of each token, their weights, and the tokens of
//                                    each expert, side by side
//   mix_experts                      out = sum over the experts of a token of weight * (its MLP)
//
// Sources: Shazeer et al. 2017 (the layer), Mixtral (Jiang et al. 2024: softmax over the chosen),
// DeepSeek-V2 and V3 (2024: groups of experts, scores by sigmoid with a correction of the choice).
#pragma once
#include <cstdint>

#include "core/gate.h"
#include "core/matrix_stack.h"
#include "core/tensor.h"

namespace inferd {

struct PackedWeight;

// How logits become scores s: exp(l) / sum of exp over all experts, or 1 / (1 + exp(-l)).
enum class RouterScores : int32_t { kSoftmax = 0, kSigmoid = 1 };
// What stands for a group of experts: its best one, or the sum of its best two.
enum class GroupScore : int32_t { kBest = 0, kBestTwo = 1 };

// Experts are chosen by c = s + correction: first the best `chosen_groups` of `groups` equal groups
// of neighbours, then the best `chosen` experts of those; ties go to the lower number. A token's
// weights are the scores s, without the correction, of the chosen ones: divided by their sum when
// `normalize`, then times `scale`. (Softmax over the chosen alone is softmax, normalized.)
struct RouterRule {
  int32_t experts = 0, chosen = 0;
  RouterScores scores = RouterScores::kSoftmax;
  bool normalize = false;
  float scale = 1;
  int32_t groups = 1, chosen_groups = 1;
  GroupScore group_score = GroupScore::kBest;
};
constexpr int32_t kMostExperts = 1024;
constexpr int32_t kMostChosen = 32;  // of a token

// Where the tokens of a step go: memory of the step arena. A pair is a token and one of its
// experts.
struct Routing {
  int32_t* experts;  // [tokens, chosen] ascending; -1 all along for rows without a token
  float* weights;    // [tokens, chosen] of those
  int32_t* places;   // [tokens, chosen] place of the pair in `pairs`; -1: it is not computed here
  // [tokens * chosen] token * chosen + i of the pairs that are computed here, by expert, then token
  int32_t* pairs;
  int32_t* offsets;  // [held + 1] of each expert held here its first place, then the end
};

struct RouteArgs {
  Tensor logits;                       // [tokens, experts] float32
  const float* correction = nullptr;   // [experts] device; null: none
  const int32_t* positions = nullptr;  // [tokens] device, -1: a row without a token; null: all have
  RouterRule rule;
  int32_t first_held = 0, held = 0;  // the experts whose weights lie here
  Routing routing;
};

// Each expert e held here: y = down_e(gate(g) * u) + b', where [g | u] = gate_up_e(x) + b.
//
// The experts' matrices lie under each other in one weight each: that of the e-th expert held
// begins at row e * stacked_rows(its rows).
struct ExpertArgs {
  Tensor out;               // [tokens, hidden], overwritten, or
  bool add_to_out = false;  // what the experts give is added to it; then it is not `x`
  Tensor x;                 // [tokens, hidden]
  int32_t chosen = 0, first_held = 0, held = 0;
  Routing routing;
  int64_t inner = 0;                    // features of an expert between its products
  const PackedWeight* gate_up;          // 2 inner rows each
  const PackedWeight* down;             // hidden rows each
  const float* gate_up_bias = nullptr;  // [held, 2 inner] device, or null
  const float* down_bias = nullptr;     // [held, hidden] device, or null
  Gate gate = Gate::kSilu;
  // Scratch, of at least one row: pairs go through in pieces of as many as fit.
  Tensor gathered;   // [pairs, hidden]
  Tensor products;   // [pairs, 2 inner]
  Tensor activated;  // [pairs, inner]
  Tensor downs;      // [pairs, hidden] float32
  Tensor sums;       // [tokens, hidden] float32, where activations are not
};

}  // namespace inferd
