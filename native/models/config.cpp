// See config.h. Every number has a range, so that sizes computed from them cannot overflow 64 bits.
#include "models/config.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/rope.h"

namespace inferd {
namespace {

constexpr int64_t kMaxSize = 1 << 20;  // hidden, intermediate
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxPositions = 1 << 24;

std::optional<DType> read_dtype(const ConfigReader& reader) {
  const std::string name = reader.string("dtype", reader.string("torch_dtype", ""));
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  return {};
}

}  // namespace

void ConfigReader::fail(const std::string& what) const {
  throw Error(ErrorCode::kBadModel, path_ + ": " + what + ".");
}
void ConfigReader::unsupported(const std::string& what) const {
  throw Error(ErrorCode::kUnsupported, path_ + ": " + what + ".");
}

const Json* ConfigReader::required(const char* key, bool has_fallback) const {
  const Json* v = root_.find(key);
  if (v == nullptr && !has_fallback) fail(format("the key %s is missing", key));
  return v;
}

int64_t ConfigReader::integer(const char* key, int64_t min, int64_t max,
                              std::optional<int64_t> fallback) const {
  const Json* v = required(key, fallback.has_value());
  if (v == nullptr) return *fallback;
  if (!v->is(Json::Kind::kInteger) || v->integer < min || v->integer > max) {
    fail(format("%s must be a whole number from %lld to %lld", key, static_cast<long long>(min),
                static_cast<long long>(max)));
  }
  return v->integer;
}

double ConfigReader::number(const char* key, double min, double max,
                            std::optional<double> fallback) const {
  const Json* v = required(key, fallback.has_value());
  if (v == nullptr) return *fallback;
  if (!v->is_number() || !(v->number >= min && v->number <= max))
    fail(format("%s must be a number from %g to %g", key, min, max));
  return v->number;
}

bool ConfigReader::boolean(const char* key, bool fallback) const {
  const Json* v = root_.find(key);
  if (v == nullptr) return fallback;
  if (!v->is(Json::Kind::kBool)) fail(format("%s must be true or false", key));
  return v->boolean;
}

std::string ConfigReader::string(const char* key, const std::string& fallback) const {
  const Json* v = root_.find(key);
  if (v == nullptr) return fallback;
  if (!v->is(Json::Kind::kString)) fail(format("%s must be a string", key));
  return v->string;
}

std::vector<double> ConfigReader::numbers(const char* key, size_t max_count) const {
  const Json* v = required(key, false);
  if (!v->is(Json::Kind::kArray) || v->array.size() > max_count)
    fail(format("%s must be a list of at most %zu numbers", key, max_count));
  std::vector<double> out;
  for (const Json& n : v->array) {
    if (!n.is_number() || !(n.number > 0 && n.number < 1e6))
      fail(format("%s must hold positive numbers", key));
    out.push_back(n.number);
  }
  return out;
}

ModelConfig read_common(const ConfigReader& r) {
  ModelConfig c;
  c.vocab_size = r.integer("vocab_size", 1, kMaxVocab);
  c.hidden_size = r.integer("hidden_size", 1, kMaxSize);
  c.intermediate_size = r.integer("intermediate_size", 1, kMaxSize);
  c.num_layers = static_cast<int32_t>(r.integer("num_hidden_layers", 1, 1024));
  c.num_heads = static_cast<int32_t>(r.integer("num_attention_heads", 1, 1024));
  c.num_kv_heads = static_cast<int32_t>(r.integer("num_key_value_heads", 1, 1024, c.num_heads));
  if (c.num_heads % c.num_kv_heads != 0) {
    r.fail(format("num_attention_heads (%d) is not a multiple of num_key_value_heads (%d)",
                  c.num_heads, c.num_kv_heads));
  }
  if (r.find("head_dim") == nullptr && c.hidden_size % c.num_heads != 0) {
    r.fail(format(
        "hidden_size (%lld) is not a multiple of num_attention_heads (%d) and there is no head_dim",
        static_cast<long long>(c.hidden_size), c.num_heads));
  }
  c.head_dim = static_cast<int32_t>(
      r.integer("head_dim", 2, 1024, std::max<int64_t>(2, c.hidden_size / c.num_heads)));
  if (c.head_dim % 2 != 0) r.fail(format("head_dim (%d) is odd", c.head_dim));
  c.max_positions = r.integer("max_position_embeddings", 1, kMaxPositions, 2048);
  c.norm_eps = static_cast<float>(r.number("rms_norm_eps", 0, 1, 1e-6));
  c.tied_embeddings = r.boolean("tie_word_embeddings", false);
  c.dtype = read_dtype(r);
  const std::string activation = r.string("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    r.unsupported("the activation " + in_quotes(activation) + " is not supported, only silu is");
  if (const Json* quantization = r.find("quantization_config"); quantization != nullptr) {
    r.unsupported("checkpoints that are already quantized (quantization_config) are not supported");
  }
  c.rope = read_rope(r, c);
  c.windows.assign(static_cast<size_t>(c.num_layers), 0);
  return c;
}

std::vector<int32_t> uniform_windows(const ConfigReader& r, int32_t num_layers, int32_t fallback) {
  const bool absent =
      std::none_of(r.root().object.begin(), r.root().object.end(),
                   [](const Json::Member& m) { return m.name == "sliding_window"; });
  const int64_t window = r.integer("sliding_window", 1, kMaxPositions, absent ? fallback : 0);
  return std::vector<int32_t>(static_cast<size_t>(num_layers), static_cast<int32_t>(window));
}

std::vector<int32_t> chosen_windows(const ConfigReader& r, int32_t num_layers) {
  std::vector<int32_t> windows(static_cast<size_t>(num_layers), 0);
  if (!r.boolean("use_sliding_window", false)) return windows;
  const std::vector<int32_t> all = uniform_windows(r, num_layers, 4096);
  const int64_t first = r.integer("max_window_layers", 0, kMaxPositions, 28);
  const Json* types = r.find("layer_types");
  if (types != nullptr &&
      (!types->is(Json::Kind::kArray) || types->array.size() != windows.size())) {
    r.fail(format("layer_types must be a list of num_hidden_layers (%d) names", num_layers));
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    bool sliding = static_cast<int64_t>(i) >= first;
    if (types != nullptr) {
      const std::string& type = types->array[i].string;
      if (type != "full_attention" && type != "sliding_attention")
        r.unsupported("the layer type " + in_quotes(type) + " is not supported");
      sliding = type == "sliding_attention";
    }
    if (sliding) windows[i] = all[i];
  }
  return windows;
}

}  // namespace inferd
