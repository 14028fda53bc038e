// Which layers of Qwen's models have experts: every decoder_sparse_step-th, but those of
// mlp_only_layers.
#pragma once
#include <functional>
#include <set>

#include "models/config/config.h"

namespace inferd {

inline std::function<bool(int32_t)> sparse_layers(const ConfigReader& r) {
  std::set<int64_t> dense;
  if (const Json* list = r.find("mlp_only_layers"); list != nullptr) {
    if (!list->is(Json::Kind::kArray)) r.fail("mlp_only_layers must be a list of layers");
    for (const Json& layer : list->array) {
      if (!layer.is(Json::Kind::kInteger)) r.fail("mlp_only_layers must hold numbers of layers");
      dense.insert(layer.integer);
    }
  }
  const int64_t step = r.integer("decoder_sparse_step", 1, 1024, 1);
  return [dense, step](int32_t layer) { return (layer + 1) % step == 0 && !dense.contains(layer); };
}

}  // namespace inferd
