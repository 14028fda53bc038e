// Gemma 3, text only: as Gemma 2 without soft caps, with norms of each head of q and k, and two
// ropes: a local one in the layers with a window, of which there are five to one full layer.
#include "models/config/rope.h"
#include "models/families/gemma.h"

namespace inferd {
namespace {

constexpr int32_t kGlobal = 0, kLocal = 1;

// Newer files describe each kind of layer; older ones mean the global rope by the usual keys.
std::vector<RopeConfig> read_ropes(const ConfigReader& r, const CommonConfig& c) {
  const int32_t head_dim = c.attention.head_dim;
  const int64_t positions = c.model.max_positions;
  const Json* newer = r.find("rope_parameters");
  const Json* full = newer == nullptr ? nullptr : newer->find("full_attention");
  const Json* sliding = newer == nullptr ? nullptr : newer->find("sliding_attention");
  if (full != nullptr && sliding != nullptr) {
    return {read_rope(r, r.nested("rope_parameters", *full), head_dim, positions),
            read_rope(r, r.nested("rope_parameters", *sliding), head_dim, positions)};
  }
  RopeConfig global = c.model.ropes[0];
  if (newer == nullptr) global.theta = r.number("rope_theta", 1, 1e15, 1e6);
  RopeConfig local;
  local.theta = r.number("rope_local_base_freq", 1, 1e15, 1e4);
  local.rotary_dim = local.head_dim = head_dim;
  return {global, local};
}

}  // namespace

ModelConfig configure_gemma3(const ConfigReader& r) {
  CommonConfig c = read_gemma(r);
  c.model.ropes = read_ropes(r, c);
  c.model.logit_softcap = static_cast<float>(r.number("final_logit_softcapping", 0.1, 1e6, 0.0));
  c.attention.softcap = static_cast<float>(r.number("attn_logit_softcapping", 0.1, 1e6, 0.0));
  c.attention.qk_norm = QkNorm::kEachHead;
  c.attention.rope = kGlobal;
  const int64_t period = r.integer("sliding_window_pattern", 1, 1024,
                                   r.integer("_sliding_window_pattern", 1, 1024, 6));
  return with_gemma_layers(r, c, period, [](AttentionConfig& a) { a.rope = kLocal; });
}

}  // namespace inferd
