// DeepSeek V3 and R1 (and Kimi K2, Moonlight): experts weighted by sigmoids, chosen with a
// correction that balances their load, from the groups whose best two are best.
#include "core/error.h"
#include "models/families/deepseek.h"

namespace inferd {

ModelConfig configure_deepseek_v3(const ConfigReader& r) {
  RouterRule rule = read_router(r);
  expect(r, "scoring_func", "sigmoid");
  expect(r, "topk_method", "noaux_tc");
  read_groups(r, rule);
  rule.scores = RouterScores::kSigmoid;
  rule.group_score = GroupScore::kBestTwo;
  rule.normalize = r.boolean("norm_topk_prob", true);
  rule.scale = static_cast<float>(r.number("routed_scaling_factor", 1e-6, 1e6, 2.5));
  return read_deepseek(r, r.boolean("rope_interleave", true), rule, true);
}

}  // namespace inferd
