// The scales that checkpoints hold for keys and values in 8-bit floats: stored = e4m3(x / scale),
// of keys after their rotation. A name of them is a line in kv_scales.cpp.
#pragma once
#include "core/checkpoint/checkpoint.h"
#include "core/kv_layer.h"
#include "models/config/config.h"

namespace inferd {

// Fills spec.scales, of this rank's heads; they stay empty where the checkpoint has none. Throws
// Error(kBadModel) for scales that are no positive numbers, of other shapes than one for all heads
// or one a head, or of keys or values alone.
void take_kv_scales(const Checkpoint& checkpoint, const ModelConfig& config, KvSpec& spec);

}  // namespace inferd
