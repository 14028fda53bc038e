// The KV cache of a model: for each layer with keys and values its arrays of blocks, of the layer's
// own sizes. Block i of every array belongs together: tables name blocks once for all layers.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/backend.h"
#include "core/memory/device_buffer.h"

namespace inferd {

class KvCache {
 public:
  // Sizes only; nothing is allocated yet.
  KvCache(std::vector<KvSpec> specs, DType dtype, int32_t block_size);
  const std::vector<KvSpec>& specs() const { return specs_; }
  // Layers whose keys and values are divided by scales of the checkpoint.
  int32_t scaled_layers() const;

  // Of one block in all arrays together.
  int64_t block_bytes() const;
  // Once. Throws Error(kOutOfMemory).
  void allocate(Backend& backend, int32_t num_blocks);

  // One for each spec; without memory before `allocate`.
  const std::vector<KvLayer>& layers() const { return layers_; }
  // All arrays, after `allocate`.
  const std::vector<BlockArray>& arrays() const { return arrays_; }

 private:
  std::vector<KvSpec> specs_;
  std::vector<KvLayer> layers_;
  std::vector<DeviceBuffer> memory_;
  std::vector<BlockArray> arrays_;
};

}  // namespace inferd
