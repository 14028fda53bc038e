// Qwen 1.5 and 2 with experts: as Qwen 2, with experts in place of the MLP but in the layers that
// the config keeps dense, and beside them a shared MLP behind a gate.
#include "models/families/sparse_layers.h"

namespace inferd {

ModelConfig configure_qwen2_moe(const ConfigReader& r) {
  CommonConfig c = read_common(r);
  c.attention.qkv_bias = r.boolean("qkv_bias", true);
  c.attention.output_bias = false;
  ModelConfig model = with_windows(c, chosen_windows(r, c.num_layers));
  ExpertsConfig experts{.rule = read_router(r),
                        .intermediate_size = r.integer("moe_intermediate_size", 1, kMaxSize),
                        .shared_size = r.integer("shared_expert_intermediate_size", 1, kMaxSize),
                        .shared_gate = true,
                        .gate = c.mlp.gate,
                        .names = {.shared = "shared_expert"}};
  experts.rule.normalize = r.boolean("norm_topk_prob", false);
  put_experts(model, experts, sparse_layers(r));
  return model;
}

}  // namespace inferd
