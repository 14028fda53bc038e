// Reads an adapter as PEFT stores it: adapter_config.json and adapter_model.safetensors in a
// folder. https://huggingface.co/docs/peft (LoraConfig)
//
//   base_model.model.<module>.lora_A.weight [rank, inputs]     lora_B.weight [outputs, rank]
//   <module> = model.layers.0.mlp.up_proj, or layers.0.mlp.up_proj
//   factor = lora_alpha / rank, or lora_alpha / sqrt(rank) with use_rslora
//
// The tensors decide which modules it adds to, and with which rank. Every tensor must be known: an
// adapter that is applied in part gives wrong answers without anybody noticing, so whatever is left
// over, or asked for by a setting that changes the arithmetic, is refused by its name.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/adapters.h"
#include "models/blocks/layers.h"

namespace inferd {

// What an adapter adds to one linear of the model.
struct AdaptedLinear {
  size_t linear;  // index in the list of linears
  std::vector<AdapterFactors> factors;
};

struct Adapter {
  int32_t rank = 0;     // the largest of its modules
  int32_t modules = 0;  // weights of the checkpoint that it adds to
  int64_t bytes = 0;    // of its factors as f32
  std::string base;     // what its config says that it was trained for, or ""; a note, no more
  std::vector<AdaptedLinear> linears;
};

// Of the shares that this rank has of `linears`. Any thread: of the linears it reads what is fixed
// once they are loaded. Throws Error(kIo) where there is no such file, Error(kBadModel) for a
// broken or unfitting one, Error(kUnsupported) for what is not supported, Error(kClosed) soon after
// `cancelled` is set: it is looked at for each module.
Adapter read_adapter(const std::string& folder, const std::vector<Linear*>& linears,
                     int32_t max_rank, const std::atomic<bool>& cancelled);

}  // namespace inferd
