// See kv_cache.h.
#include "engine/kv_cache.h"

#include <algorithm>
#include <utility>

namespace inferd {

KvCache::KvCache(std::vector<KvSpec> specs, DType dtype, int32_t block_size)
    : specs_(std::move(specs)) {
  for (const KvSpec& spec : specs_) {
    const bool scaled = dtype == DType::kF8 && !spec.scales.keys.empty();
    layers_.push_back({.k = nullptr,
                       .v = nullptr,
                       .dtype = dtype,
                       .num_blocks = 0,
                       .block_size = block_size,
                       .kv_heads = spec.kv_heads,
                       .head_dim = spec.head_dim,
                       .scales = scaled ? &spec.scales : nullptr});
  }
}

int32_t KvCache::scaled_layers() const {
  return static_cast<int32_t>(std::count_if(layers_.begin(), layers_.end(),
                                            [](const KvLayer& l) { return l.scales != nullptr; }));
}

int64_t KvCache::block_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < specs_.size(); ++i) bytes += specs_[i].arrays * layers_[i].block_bytes();
  return bytes;
}

void KvCache::allocate(Backend& backend, int32_t num_blocks) {
  std::vector<DeviceBuffer> memory;
  std::vector<BlockArray> arrays;
  std::vector<KvLayer> layers = layers_;
  for (size_t i = 0; i < specs_.size(); ++i) {
    KvLayer& layer = layers[i];
    const int64_t bytes = layer.block_bytes();
    layer.num_blocks = num_blocks;
    void** const bases[] = {&layer.k, &layer.v};
    for (int32_t a = 0; a < specs_[i].arrays; ++a) {
      *bases[a] = memory.emplace_back(backend, num_blocks * bytes).as<void>();
      arrays.push_back({.base = *bases[a], .block_bytes = bytes});
    }
  }
  memory_ = std::move(memory);
  arrays_ = std::move(arrays);
  layers_ = std::move(layers);
}

}  // namespace inferd
