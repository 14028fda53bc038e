// What config.json says about a decoder-only transformer, in one struct for all architectures.
//
// ConfigReader gives typed, range-checked access with errors that name the key. `read_common` fills
// what every architecture shares; the architecture's own file (llama.cpp, ...) sets the rest. Both
// key layouts are read: the older (`rope_theta`, `rope_scaling`, `torch_dtype`) and the newer
// (`rope_parameters`, `dtype`).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/tensor.h"

namespace inferd {

struct RopeConfig {
  enum class Type { kDefault, kLinear, kLlama3, kLongRope };
  Type type = Type::kDefault;
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_positions = 0;
  std::optional<double> attention_factor;  // longrope: as given, else derived
  std::vector<double> short_factors;       // longrope: [rotary_dim / 2]
  std::vector<double> long_factors;
  int32_t rotary_dim = 0;  // <= head_dim
};

struct ModelConfig {
  std::string architecture;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int64_t max_positions = 0;
  float norm_eps = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;          // RMS norm of each head of q and k before rope
  bool fused_qkv = false;        // one checkpoint tensor qkv_proj, rows q, k, v
  bool fused_gate_up = false;    // one checkpoint tensor gate_up_proj, rows gate, up
  std::vector<int32_t> windows;  // [num_layers], 0 = full attention
  std::optional<DType> dtype;    // the weights' dtype as announced; the files decide
  RopeConfig rope;

  int64_t q_size() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_size() const { return int64_t{num_kv_heads} * head_dim; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
};

class ConfigReader {
 public:
  ConfigReader(const Json& root, std::string path) : root_(root), path_(std::move(path)) {}

  const Json& root() const { return root_; }
  const std::string& path() const { return path_; }
  // Null when absent or `null`.
  const Json* find(const char* key) const { return root_.find(key); }
  int64_t integer(const char* key, int64_t min, int64_t max,
                  std::optional<int64_t> fallback = {}) const;
  double number(const char* key, double min, double max, std::optional<double> fallback = {}) const;
  bool boolean(const char* key, bool fallback) const;
  std::string string(const char* key, const std::string& fallback) const;
  std::vector<double> numbers(const char* key, size_t max_count) const;
  // A reader of a nested object; errors name the outer key too.
  ConfigReader nested(const char* key, const Json& object) const {
    return {object, path_ + ": " + key};
  }
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void unsupported(const std::string& what) const;

 private:
  const Json* required(const char* key, bool has_fallback) const;

  const Json& root_;
  std::string path_;
};

// Sizes, head counts, norm, embeddings, activation, dtype and rope. Throws Error(kBadModel) or, for
// what no code here computes, Error(kUnsupported).
ModelConfig read_common(const ConfigReader& reader);

// The window of every layer when `sliding` says which layers have one, as qwen2 and qwen3 do:
// `use_sliding_window` switches it on, `layer_types` or else `max_window_layers` choose the layers.
std::vector<int32_t> chosen_windows(const ConfigReader& reader, int32_t num_layers);
// The same window in every layer; `fallback` (0 = full) when the key is absent, full when it is
// null.
std::vector<int32_t> uniform_windows(const ConfigReader& reader, int32_t num_layers,
                                     int32_t fallback);

}  // namespace inferd
