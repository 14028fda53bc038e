// SmolLM3: Llama's shape, where every few layers do without rope.
#include "core/error.h"
#include "models/config/config.h"

namespace inferd {
namespace {

// 1 or 0 for each layer; without the list every n-th has none.
bool rotates(const ConfigReader& r, int32_t layer, int32_t num_layers) {
  const Json* list = r.find("no_rope_layers");
  if (list == nullptr) return (layer + 1) % r.integer("no_rope_layer_interval", 1, 1024, 4) != 0;
  if (!list->is(Json::Kind::kArray) || list->array.size() != static_cast<size_t>(num_layers))
    r.fail(format("no_rope_layers must be a list of num_hidden_layers (%d) numbers", num_layers));
  return list->array[static_cast<size_t>(layer)].integer != 0;
}

}  // namespace

ModelConfig configure_smollm3(const ConfigReader& r) {
  const CommonConfig c = read_common(r, true);
  const std::vector<int32_t> windows = chosen_windows(r, c.num_layers);
  return with_layers(c, {}, [&](int32_t i, AttentionConfig& a) {
    a.window = windows[static_cast<size_t>(i)];
    if (!rotates(r, i, c.num_layers)) a.rope = kNoRope;
  });
}

}  // namespace inferd
