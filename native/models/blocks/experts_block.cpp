// See experts_block.h.
#include "models/blocks/experts_block.h"

#include <algorithm>

namespace inferd {
namespace {

// Scratch for this many pairs at a time, unless a step has fewer: steps with more take turns. GPUs,
// whose activations have 16 bits, need many tokens of an expert side by side.
constexpr int64_t kPairs = 4096, kDevicePairs = 32768;
constexpr int64_t kPairBytes = 256 << 20, kDevicePairBytes = 640 << 20;

}  // namespace

ExpertsBlock::ExpertsBlock(const ModelConfig& model, const BlockConfig& config)
    : model_(model),
      config_(std::get<ExpertsConfig>(config.block)),
      held_(model.shard.experts(config_.rule.experts)),
      inner_(model.shard.expert_features(config_.intermediate_size)),
      shared_(model.shard.features(config_.shared_size)),
      residual_(model, config),
      shared_gate_up_(Epilogue::kGated, config_.gate),
      shared_down_(Epilogue::kAdd) {
  router_.keep_plain();
  router_.keep_alike();
  shared_gate_.keep_plain();
  gate_up_.stack();
  down_.stack();
}

void ExpertsBlock::describe(WeightList& list, const std::string& layer) {
  const ExpertsConfig& c = config_;
  const ExpertNames& n = c.names;
  const std::string at = layer + n.block;
  const int64_t hidden = model_.hidden_size, inner = c.intermediate_size;
  offsets_ = DeviceBuffer(list.backend, (held_.count + 1) * static_cast<int64_t>(sizeof(int32_t)));
  residual_.describe(list, layer, model_);
  router_.add(list, at, {{n.router, c.rule.experts}}, Inputs(hidden), c.router_bias);
  if (c.correction) {
    correction_.add(
        list, TensorSlice::whole(at + n.router + ".e_score_correction_bias", {c.rule.experts}),
        false);
  }
  std::vector<Section> gate_up, down;
  const auto fill = [](Section& last, int64_t rows) { last.filled = stacked_rows(rows) - rows; };
  for (int64_t e = held_.first; e < held_.first + held_.count; ++e) {
    const std::string expert = "experts." + std::to_string(e) + ".";
    gate_up.emplace_back(expert + n.gate, inner, inner_);
    gate_up.emplace_back(expert + n.up, inner, inner_);
    fill(gate_up.back(), 2 * inner_.count);
    down.emplace_back(expert + n.down, hidden);
    fill(down.back(), hidden);
  }
  gate_up_.add(list, at, gate_up, Inputs(hidden), c.bias);
  // Products of parts of an expert are added up over the ranks: its bias belongs to one of them.
  const bool adds_bias = model_.shard.whole_experts || model_.shard.rank == 0;
  down_.add(list, at, down, {inner, inner_}, c.bias && adds_bias);
  list.parameters_elsewhere += (c.rule.experts - held_.count) * parameters_of_one();
  if (!has_shared()) return;
  const std::string shared = at + n.shared + ".";
  shared_gate_up_.add(list, shared,
                      {{n.gate, c.shared_size, shared_}, {n.up, c.shared_size, shared_}},
                      Inputs(hidden), false);
  shared_down_.add(list, shared, {{n.down, hidden}}, {c.shared_size, shared_}, false);
  if (c.shared_gate) shared_gate_.add(list, at, {{n.shared_gate, 1}}, Inputs(hidden), false);
}

// The norm ahead has several readers and is not folded into any of them.
void ExpertsBlock::finish_loading(Backend& backend) { router_.hand_bias(backend); }

void ExpertsBlock::carve(Arena& arena, DType activation, int64_t max_tokens) {
  const int64_t chosen = config_.rule.chosen, rows = rows_of_ranks(max_tokens);
  const int64_t all = rows * chosen;
  const int64_t hidden = model_.hidden_size, inner = inner_.count;
  logits_ = arena.take_matrix(DType::kF32, max_tokens, config_.rule.experts);
  if (spreads()) {
    all_rows_ = arena.take_matrix(activation, rows, hidden);
    all_logits_ = arena.take_matrix(DType::kF32, rows, config_.rule.experts);
    all_sums_ = arena.take_matrix(activation, rows, hidden);
  }
  routing_ = {.experts = arena.take<int32_t>(all),
              .weights = arena.take<float>(all),
              .places = arena.take<int32_t>(all),
              .pairs = arena.take<int32_t>(all),
              .offsets = offsets_.as<int32_t>()};
  const int64_t bytes = dtype_bytes(activation) * (hidden + 3 * inner) + 4 * hidden;
  const bool narrow = activation != DType::kF32;
  const int64_t most = narrow ? kDevicePairs : kPairs;
  const int64_t room = (narrow ? kDevicePairBytes : kPairBytes) / bytes;
  // Experts may begin at every sixteenth row.
  const int64_t wanted = narrow ? all + 16 * held_.count : all;
  const int64_t pairs = std::clamp<int64_t>(room, 1, std::min(wanted, most));
  gathered_ = arena.take_matrix(activation, pairs, hidden);
  products_ = arena.take_matrix(activation, pairs, 2 * inner);
  activated_ = arena.take_matrix(activation, pairs, inner);
  downs_ = arena.take_matrix(DType::kF32, pairs, hidden);
  if (activation != DType::kF32) sums_ = arena.take_matrix(DType::kF32, rows, hidden);
  if (!has_shared()) return;
  shared_rows_ = arena.take_matrix(activation, max_tokens, 2 * shared_.count);
  shared_activated_ = arena.take_matrix(activation, max_tokens, shared_.count);
  if (config_.shared_gate) shared_logits_ = arena.take_matrix(DType::kF32, max_tokens, 1);
}

LayerShape ExpertsBlock::shape() const {
  return {.hidden_size = model_.hidden_size,
          .intermediate_size = inner_.count,
          .experts = config_.rule.experts,
          .coded_experts = gate_up_.weight_format().scaled || down_.weight_format().scaled,
          .gated_rows = config_.shared_gate};
}

std::optional<ExpertLoad> ExpertsBlock::expert_load() const {
  const auto bytes = [](const PackedWeight& w, int64_t rows) {
    return weight_bytes(w.format, rows, w.cols);
  };
  const int64_t hidden = model_.hidden_size;
  return ExpertLoad{
      .offsets = offsets_.as<int32_t>(),
      .held = static_cast<int32_t>(held_.count),
      .chosen = config_.rule.chosen,
      .bytes = bytes(*gate_up_.weight(), 2 * inner_.count) + bytes(*down_.weight(), hidden),
      .parameters = parameters_of_one()};
}

int64_t ExpertsBlock::parameters_of_one() const {
  const int64_t hidden = model_.hidden_size, inner = config_.intermediate_size;
  return 3 * hidden * inner + (config_.bias ? 2 * inner + hidden : 0);
}

void ExpertsBlock::forward(Backend& backend, const StepContext& step, Stream& s, bool) const {
  if (s.rows == 0) return stand_by(backend);
  if (spreads()) return forward_spread(backend, s);
  const Tensor x = residual_.read(backend, s);
  const bool direct = residual_.adds_directly();
  const Tensor out = head_rows(direct ? s.hidden : s.delta, s.rows);
  mix(backend, {.x = x,
                .logits = route_logits(backend, x, s),
                // Graphs have rows without tokens, and no picks: with picks all rows are tokens.
                .positions = step.picks == nullptr ? step.batch.positions : nullptr,
                .out = out,
                .add_to_out = direct});
  if (has_shared()) add_shared(backend, x, s, out);
  if (!direct) residual_.write(backend, s);
}

void ExpertsBlock::forward_spread(Backend& backend, const Stream& s) const {
  const Tensor x = residual_.read(backend, s), out = head_rows(s.delta, s.rows);
  mix_spread(backend, x, route_logits(backend, x, s), out);
  if (has_shared()) add_shared(backend, x, s, out);
  residual_.write(backend, s);
}

void ExpertsBlock::stand_by(Backend& backend) const {
  if (!spreads()) return;
  const Tensor none = head_rows(all_rows_, 0);
  mix_spread(backend, none, head_rows(logits_, 0), none);
}

void ExpertsBlock::mix_spread(Backend& backend, const Tensor& x, const Tensor& logits,
                              const Tensor& out) const {
  const GatheredRows rows = backend.gather_rows(all_rows_, x);
  if (rows.total == 0) return;  // which all ranks know
  backend.gather_rows(all_logits_, logits);
  const Tensor sums = head_rows(all_sums_, rows.total);
  mix(backend, {.x = head_rows(all_rows_, rows.total),
                .logits = head_rows(all_logits_, rows.total),
                .positions = nullptr,
                .out = sums,
                .add_to_out = false});
  backend.scatter_sums(out, sums, rows.first);
}

Tensor ExpertsBlock::route_logits(Backend& backend, const Tensor& x, const Stream& s) const {
  const Tensor logits = head_rows(logits_, s.rows);
  router_.apply(backend, {.out = logits, .x = x, .weight = nullptr, .adapters = s.adapters});
  return logits;
}

void ExpertsBlock::mix(Backend& backend, const Mix& m) const {
  const auto first_held = static_cast<int32_t>(held_.first);
  const auto held = static_cast<int32_t>(held_.count);
  backend.route({.logits = m.logits,
                 .correction = correction_.data(),
                 .positions = m.positions,
                 .rule = config_.rule,
                 .first_held = first_held,
                 .held = held,
                 .routing = routing_});
  backend.mix_experts({.out = m.out,
                       .add_to_out = m.add_to_out,
                       .x = m.x,
                       .chosen = config_.rule.chosen,
                       .first_held = first_held,
                       .held = held,
                       .routing = routing_,
                       .inner = inner_.count,
                       .gate_up = gate_up_.weight(),
                       .down = down_.weight(),
                       .gate_up_bias = gate_up_.bias(),
                       .down_bias = down_.bias(),
                       .gate = config_.gate,
                       .gathered = gathered_,
                       .products = products_,
                       .activated = activated_,
                       .downs = downs_,
                       .sums = sums_});
}

void ExpertsBlock::add_shared(Backend& backend, const Tensor& x, const Stream& s,
                              const Tensor& out) const {
  const Tensor activated = head_rows(shared_activated_, s.rows);
  shared_gate_up_.apply(backend, {.out = activated,
                                  .x = x,
                                  .weight = nullptr,
                                  .scratch = head_rows(shared_rows_, s.rows),
                                  .adapters = s.adapters});
  if (config_.shared_gate) {
    const Tensor logits = head_rows(shared_logits_, s.rows);
    shared_gate_.apply(backend, {.out = logits, .x = x, .weight = nullptr, .adapters = s.adapters});
    backend.gate_rows(activated, logits);  // as good as behind `down`, which is linear
  }
  // x has been read for the last time.
  shared_down_.apply(backend, {.out = out,
                               .x = activated,
                               .weight = nullptr,
                               .scratch = head_rows(s.normed, s.rows),
                               .adapters = s.adapters});
}

}  // namespace inferd
