// Table rows of experts (core/experts.h): attributes | inputs -> outputs.
//
// route: ROUTE | LOGITS -> ROUTING
//   ROUTE = rows experts chosen sigmoid? normalize? scale? groups? chosen_groups? best_two?
//           first_held? held?
//   LOGITS = logits[rows, experts] correction?[experts] positions?[rows]
//   ROUTING = experts[rows, chosen] weights[rows, chosen] places[rows, chosen] pairs[rows * chosen]
//             offsets[held + 1]
//
// mix_experts: ROUTE cols inner dtype gate? capacity | LOGITS x[rows, cols]
//              gate_up[held * 2 inner, cols] down[held * cols, inner] gate_up_bias?[held * 2 inner]
//              down_bias?[held * cols] inout?[rows, cols] -> out[rows, cols] ROUTING
//   `capacity`: pairs that the scratch has room for. Routes first. `inout`: what is added to.
#include <algorithm>
#include <vector>

#include "addon/op_table/op_rows.h"
#include "core/error.h"

namespace inferd {
namespace {

RouteArgs route_args(OpTestCall& c) {
  RouteArgs a;
  const int32_t rows = c.size("rows");
  RouterRule& rule = a.rule;
  rule.experts = c.size("experts");
  rule.chosen = c.size("chosen");
  rule.scores = c.size_or("sigmoid", 0) != 0 ? RouterScores::kSigmoid : RouterScores::kSoftmax;
  rule.normalize = c.size_or("normalize", 0) != 0;
  rule.scale = c.number_or("scale", 1);
  rule.groups = c.size_or("groups", 1);
  rule.chosen_groups = c.size_or("chosen_groups", 1);
  rule.group_score = c.size_or("best_two", 0) != 0 ? GroupScore::kBestTwo : GroupScore::kBest;
  a.first_held = c.size_or("first_held", 0);
  a.held = c.size_or("held", rule.experts);
  if (rule.experts < 1 || rule.experts > kMostExperts || rule.chosen < 1 ||
      rule.chosen > kMostChosen || rule.groups < 1 || rule.experts % rule.groups != 0 ||
      rule.chosen_groups < 1 || rule.chosen_groups > rule.groups ||
      rule.chosen > rule.experts / rule.groups * rule.chosen_groups || a.held < 1 ||
      int64_t{a.first_held} + a.held > rule.experts) {
    throw Error(ErrorCode::kUsage, "runOp: a rule of the router is out of range");
  }
  a.logits = c.matrix("logits", DType::kF32, rows, rule.experts);
  a.correction = c.has("correction") ? c.floats("correction", rule.experts) : nullptr;
  a.positions = c.has("positions") ? c.ints("positions", rows) : nullptr;
  const int64_t pairs = int64_t{rows} * rule.chosen;
  a.routing = {.experts = c.new_array<int32_t>(pairs),
               .weights = c.new_array<float>(pairs),
               .places = c.new_array<int32_t>(pairs),
               .pairs = c.new_array<int32_t>(pairs),
               .offsets = c.new_array<int32_t>(a.held + 1)};
  c.output_ints("experts", a.routing.experts, pairs);
  c.output_floats("weights", a.routing.weights, pairs);
  c.output_ints("places", a.routing.places, pairs);
  c.output_ints("pairs", a.routing.pairs, pairs);
  c.output_ints("offsets", a.routing.offsets, a.held + 1);
  return a;
}

Napi::Object run_route(OpTestCall& c) {
  const RouteArgs a = route_args(c);
  return c.run([&] { c.backend().route(a); });
}

// The matrices of all experts, `rows` rows each.
PackedWeightPtr fill_experts(OpTestCall& c, const char* name, int64_t held, int64_t rows,
                             int64_t cols) {
  const WeightFormat format = c.weight_format("dtype");
  PackedWeightPtr weight = c.backend().make_weight(
      {.rows = held * stacked_rows(rows), .cols = cols, .format = format, .stacked = true});
  const DType stored = format.scaled ? DType::kF32 : c.dtype("dtype");
  const Tensor given = c.matrix(name, stored, held * rows, cols);
  const int64_t bytes = rows * cols * dtype_bytes(stored);
  std::vector<std::byte> host(static_cast<size_t>(bytes));
  for (int64_t e = 0; e < held; ++e) {
    c.backend().download(host.data(), given.as<std::byte>() + e * bytes, host.size());
    c.backend().fill_weight(*weight, WeightRole::kCodes, e * stacked_rows(rows),
                            Tensor::matrix(host.data(), stored, rows, cols));
  }
  return weight;
}

Napi::Object run_mix_experts(OpTestCall& c) {
  const RouteArgs route = route_args(c);
  const int64_t rows = c.size("rows"), cols = c.size("cols"), inner = c.size("inner");
  const int64_t held = route.held, capacity = c.size("capacity");
  if (cols < 1 || inner < 1 || capacity < 1)
    throw Error(ErrorCode::kUsage, "runOp: sizes of experts are out of range");
  const PackedWeightPtr gate_up = fill_experts(c, "gate_up", held, 2 * inner, cols);
  const PackedWeightPtr down = fill_experts(c, "down", held, cols, inner);
  const bool adds = c.has("inout");
  ExpertArgs a{
      .out = adds ? c.activations("inout", rows, cols) : c.new_activations(rows, cols),
      .add_to_out = adds,
      .x = c.activations("x", rows, cols),
      .chosen = route.rule.chosen,
      .first_held = route.first_held,
      .held = route.held,
      .routing = route.routing,
      .inner = inner,
      .gate_up = gate_up.get(),
      .down = down.get(),
      .gate_up_bias = c.has("gate_up_bias") ? c.floats("gate_up_bias", held * 2 * inner) : nullptr,
      .down_bias = c.has("down_bias") ? c.floats("down_bias", held * cols) : nullptr,
      .gate = c.gate(),
      .gathered = c.new_activations(capacity, cols),
      .products = c.new_activations(capacity, 2 * inner),
      .activated = c.new_activations(capacity, inner),
      .downs = {},
      .sums = {}};
  a.downs = Tensor::matrix(c.new_array<float>(capacity * cols), DType::kF32, capacity, cols);
  a.sums = Tensor::matrix(c.new_array<float>(rows * cols), DType::kF32, rows, cols);
  c.output("out", a.out);
  return c.run([&] {
    c.backend().route(route);
    c.backend().mix_experts(a);
  });
}

constexpr OpTest kTests[] = {{"route", run_route}, {"mix_experts", run_mix_experts}};

}  // namespace

std::span<const OpTest> expert_op_tests() { return kTests; }

}  // namespace inferd
