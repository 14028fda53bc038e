// Qwen 3 with experts: as Qwen 3, with experts in place of the MLP but in the layers that the
// config keeps dense.
#include "models/families/sparse_layers.h"

namespace inferd {

ModelConfig configure_qwen3_moe(const ConfigReader& r) {
  CommonConfig c = read_common(r);
  c.attention.qk_norm = QkNorm::kEachHead;
  ModelConfig model = with_windows(c, chosen_windows(r, c.num_layers));
  ExpertsConfig experts{.rule = read_router(r),
                        .intermediate_size = r.integer("moe_intermediate_size", 1, kMaxSize),
                        .gate = c.mlp.gate};
  experts.rule.normalize = r.boolean("norm_topk_prob", false);
  put_experts(model, experts, sparse_layers(r));
  return model;
}

}  // namespace inferd
