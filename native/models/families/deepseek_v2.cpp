// DeepSeek V2: experts weighted by a softmax over all of them, from the best groups or from all.
#include "core/error.h"
#include "models/families/deepseek.h"

namespace inferd {

ModelConfig configure_deepseek_v2(const ConfigReader& r) {
  RouterRule rule = read_router(r);
  expect(r, "scoring_func", "softmax");
  const std::string method = r.string("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    read_groups(r, rule);
  } else if (method != "greedy") {
    r.unsupported("topk_method " + in_quotes(method) +
                  " is not supported; greedy and group_limited_greedy are");
  }
  rule.group_score = GroupScore::kBest;
  rule.normalize = r.boolean("norm_topk_prob", false);
  rule.scale = static_cast<float>(r.number("routed_scaling_factor", 1e-6, 1e6, 1.0));
  return read_deepseek(r, true, rule, false);
}

}  // namespace inferd
