// See kv_scales.h.
#include "models/config/kv_scales.h"

#include <cmath>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/half.h"

namespace inferd {
namespace {

// Behind the name of an attention; the first pair of which a checkpoint has any counts.
struct Spelling {
  const char *keys, *values;
};
constexpr Spelling kSpellings[] = {
    {"k_scale", "v_scale"},                          // compressed-tensors
    {"k_proj.k_scale", "v_proj.v_scale"},            // ModelOpt
    {"attn.k_scale", "attn.v_scale"},                // as vLLM has them
    {"k_proj.output_scale", "v_proj.output_scale"},  // of projections
    {"kv_scale", "kv_scale"},                        // deprecated: one for both
};

struct Found {
  std::string name;  // as the checkpoint has it
  const StoredTensor* tensor;
};

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kBadModel,
              format("The tensor %s %s; set cache.cache_dtype to bf16 to do without it.",
                     name.c_str(), why.c_str()));
}

// A tensor may lie at any address.
float number(const StoredTensor& tensor, int64_t i) {
  const int64_t bytes = dtype_bytes(tensor.dtype);
  float aligned = 0;
  std::memcpy(&aligned, tensor.data + i * bytes, static_cast<size_t>(bytes));
  return load_f32(&aligned, tensor.dtype, 0);
}

std::vector<float> read(const Found& found, const ModelConfig& config, const KvSpec& spec) {
  const StoredTensor& tensor = *found.tensor;
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  if (count != 1 && count != spec.all_heads) {
    refuse(found.name, format("has the shape %s, and a scale of keys and values is one number, or "
                              "one for each of %d heads",
                              shape_text(tensor.shape).c_str(), spec.all_heads));
  }
  if (!tensor.floating)
    refuse(found.name, format("is %s, and scales are f32, f16 or bf16", tensor.dtype_name.c_str()));
  for (int64_t i = 0; i < count; ++i) {
    const float scale = number(tensor, i);
    if (std::isfinite(scale) && scale > 0) continue;
    refuse(found.name, format("holds a scale of %g, and keys and values cannot be divided by that",
                              static_cast<double>(scale)));
  }
  const Share heads = config.shard.kv_heads(spec.all_heads);
  std::vector<float> scales(static_cast<size_t>(spec.kv_heads));
  for (size_t h = 0; h < scales.size(); ++h)
    scales[h] = number(tensor, count == 1 ? 0 : heads.first + static_cast<int64_t>(h));
  return scales;
}

}  // namespace

void take_kv_scales(const Checkpoint& checkpoint, const ModelConfig& config, KvSpec& spec) {
  if (spec.name.empty()) return;
  const auto find = [&](const char* name) -> Found {
    const std::string stored = stored_name(config.names, spec.name + name);
    return {stored, checkpoint.find(stored)};
  };
  for (const Spelling& spelling : kSpellings) {
    const Found keys = find(spelling.keys), values = find(spelling.values);
    if (keys.tensor == nullptr && values.tensor == nullptr) continue;
    const bool both = spec.arrays == 2;
    if (keys.tensor == nullptr || (both && values.tensor == nullptr)) {
      const Found &there = keys.tensor == nullptr ? values : keys,
                  &other = keys.tensor == nullptr ? keys : values;
      refuse(there.name, format("is there without %s", other.name.c_str()));
    }
    spec.scales.keys = read(keys, config, spec);
    if (both) spec.scales.values = read(values, config, spec);
    return;
  }
}

}  // namespace inferd
