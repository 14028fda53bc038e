// gpt-oss: attention with sinks and a window in every other layer, biases everywhere, and experts
// with a clamped gate, stored as one tensor a layer, with the rows of gate and up by turns; MXFP4
// in OpenAI's own checkpoints.
#include "models/config/config.h"

namespace inferd {
namespace {

// Of the gate: core/gate.h.
constexpr double kLimit = 7;

}  // namespace

ModelConfig configure_gpt_oss(const ConfigReader& r) {
  CommonConfig c = read_common(r);
  c.attention.qkv_bias = c.attention.output_bias = r.boolean("attention_bias", true);
  c.attention.sinks = true;
  if (r.number("swiglu_limit", 0, 1e6, kLimit) != kLimit)
    r.unsupported("swiglu_limit is not 7, the only one that is supported");
  const std::vector<int32_t> windows = uniform_windows(r, c.num_layers, 128);
  const std::vector<bool> sliding = sliding_layers(r, c.num_layers, 2);
  ModelConfig model = with_layers(c, {}, [&](int32_t i, AttentionConfig& a) {
    const auto at = static_cast<size_t>(i);
    if (sliding[at]) a.window = windows[at];
  });
  ExpertsConfig experts{.rule = read_router(r),
                        .intermediate_size = c.mlp.intermediate_size,
                        .router_bias = true,
                        .bias = true,
                        .gate = Gate::kClampedSwiglu,
                        .names = {.router = "router"}};
  experts.rule.normalize = true;
  put_experts(model, experts, [](int32_t) { return true; });
  model.expert_layout = {.stacked = true, .in_turn = true, .transposed = true};
  return model;
}

}  // namespace inferd
