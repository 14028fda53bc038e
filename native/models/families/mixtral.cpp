// Mixtral: Mistral's layers with experts in place of the MLP, weighted by a softmax over the chosen
// ones. Its tensors have names of their own: w1 is the gate, w3 up, w2 down.
#include "models/config/config.h"

namespace inferd {

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
  return model;
}

}  // namespace inferd
