// Mixture of experts (core/experts.h). On the stream thread, spread over the pool.
//
// A token's experts and their weights follow from its logits alone, and its sum runs over them in
// the order of their numbers: an output row depends on its own input only, as everywhere here.
// Pairs go through in pieces that the packed rows have room for, and a piece holds whole experts
// where it can: then each expert's weights are read once a step.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/cpu_backend.h"

namespace inferd::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// What is no number chooses like the smallest one: -inf is for what must not be chosen (again).
float comparable(float x) {
  constexpr float kLeast = std::numeric_limits<float>::lowest();
  return x > kLeast ? x : kLeast;
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// What a group counts for.
float group_value(const RouterRule& rule, const float* choice, int32_t size) {
  float best = kMinusInf, second = kMinusInf;
  for (int32_t e = 0; e < size; ++e) {
    if (choice[e] > best) {
      second = best;
      best = choice[e];
    } else if (choice[e] > second) {
      second = choice[e];
    }
  }
  return rule.group_score == GroupScore::kBestTwo && size > 1 ? best + second : best;
}

// The place of the largest value, the first of several; values of taken places are -inf.
int32_t take_best(float* values, int32_t n) {
  const auto best = static_cast<int32_t>(std::max_element(values, values + n) - values);
  values[best] = kMinusInf;
  return best;
}

// Experts outside of the best groups are not to be chosen: -inf, below any score.
void leave_out_groups(const RouterRule& rule, float* choice) {
  const int32_t size = rule.experts / rule.groups;
  float values[kMostExperts];
  bool kept[kMostExperts] = {};
  for (int32_t g = 0; g < rule.groups; ++g) values[g] = group_value(rule, choice + g * size, size);
  for (int32_t i = 0; i < rule.chosen_groups; ++i) kept[take_best(values, rule.groups)] = true;
  for (int32_t g = 0; g < rule.groups; ++g)
    if (!kept[g]) std::fill_n(choice + g * size, size, kMinusInf);
}

// Experts and weights of one token.
void route_token(const RouteArgs& a, const float* logits, int32_t* experts, float* weights) {
  const RouterRule& rule = a.rule;
  const bool softmax = rule.scores == RouterScores::kSoftmax;
  float choice[kMostExperts];
  float top = kMinusInf;
  for (int32_t e = 0; e < rule.experts; ++e) top = std::max(top, logits[e]);
  float sum = 0;
  const auto score = [&](int32_t e) {
    return softmax ? std::exp(logits[e] - top) : sigmoid(logits[e]);
  };
  if (softmax)
    for (int32_t e = 0; e < rule.experts; ++e) sum += score(e);
  // Softmax keeps the order of the logits, of which fewer are equal.
  for (int32_t e = 0; e < rule.experts; ++e) {
    const float s = softmax ? (a.correction ? score(e) / sum : logits[e]) : score(e);
    choice[e] = comparable(s + (a.correction ? a.correction[e] : 0.0f));
  }
  if (rule.chosen_groups < rule.groups) leave_out_groups(rule, choice);
  for (int32_t i = 0; i < rule.chosen; ++i) experts[i] = take_best(choice, rule.experts);
  std::sort(experts, experts + rule.chosen);
  float total = 0;
  for (int32_t i = 0; i < rule.chosen; ++i) total += weights[i] = score(experts[i]);
  if (rule.normalize) sum = softmax ? total : total + 1e-20f;
  const float factor = rule.scale / (softmax || rule.normalize ? sum : 1.0f);
  for (int32_t i = 0; i < rule.chosen; ++i) weights[i] *= factor;
}

}  // namespace

void CpuBackend::route(const RouteArgs& a) {
  const TraceScope scope(trace_, "route");
  const Routing& r = a.routing;
  const int32_t chosen = a.rule.chosen;
  const auto tokens = static_cast<int32_t>(a.logits.rows());
  over_rows(tokens, 16 * int64_t{a.rule.experts}, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      int32_t* experts = r.experts + t * chosen;
      float* weights = r.weights + t * chosen;
      if (a.positions == nullptr || a.positions[t] >= 0) {
        route_token(a, row_of(a.logits, t), experts, weights);
        continue;
      }
      std::fill_n(experts, chosen, -1);
      std::fill_n(weights, chosen, 0.0f);
    }
  });
  // By counting: stable, so tokens of an expert stay in order.
  const auto held = [&](int32_t pair) {
    const int32_t e = r.experts[pair] - a.first_held;
    return e >= 0 && e < a.held ? e : -1;
  };
  std::fill_n(r.offsets, a.held + 1, 0);
  for (int32_t pair = 0; pair < tokens * chosen; ++pair)
    if (const int32_t e = held(pair); e >= 0) ++r.offsets[e + 1];
  for (int32_t e = 0; e < a.held; ++e) r.offsets[e + 1] += r.offsets[e];
  for (int32_t pair = 0; pair < tokens * chosen; ++pair) {
    const int32_t e = held(pair);
    r.places[pair] = e >= 0 ? r.offsets[e]++ : -1;
    if (e >= 0) r.pairs[r.places[pair]] = pair;
  }
  // Each offset has become the next one.
  std::copy_backward(r.offsets, r.offsets + a.held, r.offsets + a.held + 1);
  r.offsets[0] = 0;
}

void CpuBackend::mix_experts(const ExpertArgs& a) {
  const TraceScope scope(trace_, "mix_experts");
  const int64_t room = std::min(kMaxPackedRows, a.gathered.rows());
  const int32_t* offsets = a.routing.offsets;
  if (!a.add_to_out)
    for (int64_t t = 0; t < a.out.rows(); ++t) std::fill_n(row_of(a.out, t), a.out.cols(), 0.0f);
  int32_t e = 0;
  for (int64_t first = 0; first < offsets[a.held];) {
    int64_t end = std::min<int64_t>(first + room, offsets[a.held]);
    while (offsets[e + 1] <= end && e + 1 < a.held) ++e;
    if (offsets[e] > first && offsets[e + 1] > end) end = offsets[e];
    mix_piece(a, first, end);
    first = end;
  }
}

void CpuBackend::gate_rows(Tensor inout, const Tensor& logits) {
  const TraceScope scope(trace_, "gate_rows");
  over_rows(inout.rows(), inout.cols(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = row_of(inout, i);
      const float factor = sigmoid(*row_of(logits, i));
      for (int64_t c = 0; c < inout.cols(); ++c) row[c] *= factor;
    }
  });
}

// Pairs [first, end).
void CpuBackend::mix_piece(const ExpertArgs& a, int64_t first, int64_t end) {
  const Routing& r = a.routing;
  const auto& gate_up = static_cast<const CpuWeight&>(*a.gate_up);
  const auto& down = static_cast<const CpuWeight&>(*a.down);
  const int64_t hidden = a.out.cols(), rows = end - first;
  // Groups of one product: an expert's matrix has `outs` rows.
  const auto groups = [&](int64_t outs, const float* bias) {
    expert_groups_.clear();
    const auto* next = std::upper_bound(r.offsets, r.offsets + a.held + 1, first);
    for (int64_t e = next - r.offsets - 1; e < a.held && r.offsets[e] < end; ++e) {
      const int64_t from = std::max<int64_t>(r.offsets[e], first);
      const int64_t to = std::min<int64_t>(r.offsets[e + 1], end);
      if (from == to) continue;
      expert_groups_.push_back({.first = from - first,
                                .count = to - from,
                                .first_weight_row = e * stacked_rows(outs),
                                .bias = bias == nullptr ? nullptr : bias + e * outs});
    }
    return std::span<const RowGroup>(expert_groups_);
  };
  over_rows(rows, hidden, [&](int64_t begin, int64_t stop, int) {
    for (int64_t i = begin; i < stop; ++i)
      std::copy_n(row_of(a.x, r.pairs[first + i] / a.chosen), hidden, row_of(a.gathered, i));
  });
  multiply_groups(a.products, a.gathered, gate_up, 2 * a.inner,
                  groups(2 * a.inner, a.gate_up_bias));
  const auto gate = kernels_.gated_mul[static_cast<size_t>(a.gate)];
  over_rows(rows, 8 * a.inner, [&](int64_t begin, int64_t stop, int) {
    for (int64_t i = begin; i < stop; ++i) {
      const float* g = row_of(a.products, i);
      gate(row_of(a.activated, i), g, g + a.inner, a.inner);
    }
  });
  multiply_groups(a.downs, a.activated, down, hidden, groups(hidden, a.down_bias));
  over_rows(a.out.rows(), 2 * a.chosen * hidden, [&](int64_t begin, int64_t stop, int) {
    for (int64_t pair = begin * a.chosen; pair < stop * a.chosen; ++pair) {
      const int64_t place = r.places[pair];
      if (place < first || place >= end) continue;
      kernels_.add(row_of(a.out, pair / a.chosen), row_of(a.downs, place - first), hidden,
                   r.weights[pair]);
    }
  });
}

}  // namespace inferd::cpu
