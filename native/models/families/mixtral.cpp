// Mixtral: Mistral's layers with experts in place of the MLP, weighted by a softmax over the chosen
// ones. Its tensors have names of their own: w1 is the gate, w3 up, w2 down; those of newer
// checkpoints are the usual ones.
#include <string>

#include "models/config/config.h"

namespace inferd {
namespace {

OtherNames newer_names() {
  constexpr const char* kParts[][2] = {{"gate", "gate"},
                                       {"experts.{}.w1", "experts.{}.gate_proj"},
                                       {"experts.{}.w3", "experts.{}.up_proj"},
                                       {"experts.{}.w2", "experts.{}.down_proj"}};
  OtherNames newer{.holds = "model.layers.0.mlp.gate.weight", .names = {}};
  const std::string layer = "model.layers.{}.";
  for (const auto& [from, to] : kParts)
    newer.names.push_back(
        {layer + "block_sparse_moe." + from + ".weight", layer + "mlp." + to + ".weight"});
  return newer;
}

}  // namespace

ModelConfig configure_mixtral(const ConfigReader& r) {
  const CommonConfig c = read_common(r);
  ModelConfig model = with_windows(c, uniform_windows(r, c.num_layers, 0));
  ExpertsConfig experts{
      .rule = read_router(r),
      .intermediate_size = c.mlp.intermediate_size,
      .gate = c.mlp.gate,
      .names = {.block = "block_sparse_moe.", .gate = "w1", .up = "w3", .down = "w2"}};
  experts.rule.normalize = true;
  put_experts(model, experts, [](int32_t) { return true; });
  model.newer = newer_names();
  return model;
}

}  // namespace inferd
