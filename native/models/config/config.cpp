// See config.h. Every number has a range, so that sizes computed from them cannot overflow 64 bits.
#include "models/config/config.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/config/rope.h"

namespace inferd {
namespace {

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

bool ConfigReader::mentions(const char* key) const {
  return std::any_of(root_.object.begin(), root_.object.end(),
                     [&](const Json::Member& m) { return m.name == key; });
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

namespace {

Gate read_gate(const ConfigReader& r) {
  // Gemma's files have both names, and mean the newer.
  const std::string name = r.string("hidden_activation", r.string("hidden_act", "silu"));
  if (name == "silu" || name == "swish") return Gate::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Gate::kGeluTanh;
  r.unsupported("the activation " + in_quotes(name) +
                " is not supported, only silu and gelu_pytorch_tanh are");
}

AttentionConfig read_attention(const ConfigReader& r, int64_t hidden_size) {
  AttentionConfig a;
  a.heads = static_cast<int32_t>(r.integer("num_attention_heads", 1, 1024));
  a.kv_heads = static_cast<int32_t>(r.integer("num_key_value_heads", 1, 1024, a.heads));
  if (a.heads % a.kv_heads != 0) {
    r.fail(format("num_attention_heads (%d) is not a multiple of num_key_value_heads (%d)", a.heads,
                  a.kv_heads));
  }
  if (r.find("head_dim") == nullptr && hidden_size % a.heads != 0) {
    r.fail(format(
        "hidden_size (%lld) is not a multiple of num_attention_heads (%d) and there is no head_dim",
        static_cast<long long>(hidden_size), a.heads));
  }
  a.head_dim = static_cast<int32_t>(
      r.integer("head_dim", 2, 1024, std::max<int64_t>(2, hidden_size / a.heads)));
  if (a.head_dim % 2 != 0) r.fail(format("head_dim (%d) is odd", a.head_dim));
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  a.qkv_bias = a.output_bias = r.boolean("attention_bias", false);
  return a;
}

}  // namespace

CommonConfig read_sizes(const ConfigReader& r, bool tied) {
  CommonConfig c;
  ModelConfig& m = c.model;
  m.vocab_size = r.integer("vocab_size", 1, kMaxVocab);
  m.hidden_size = r.integer("hidden_size", 1, kMaxSize);
  c.mlp.intermediate_size = r.integer("intermediate_size", 1, kMaxSize);
  c.num_layers = static_cast<int32_t>(r.integer("num_hidden_layers", 1, 1024));
  m.max_positions = r.integer("max_position_embeddings", 1, kMaxPositions, 2048);
  m.norm_eps = static_cast<float>(r.number("rms_norm_eps", 0, 1, 1e-6));
  m.tied_embeddings = r.boolean("tie_word_embeddings", tied);
  m.dtype = read_dtype(r);
  c.mlp.gate = read_gate(r);
  c.mlp.bias = r.boolean("mlp_bias", false);
  return c;
}

CommonConfig read_common(const ConfigReader& r, bool tied) {
  CommonConfig c = read_sizes(r, tied);
  ModelConfig& m = c.model;
  c.attention = read_attention(r, m.hidden_size);
  m.ropes = {read_rope(r, c.attention.head_dim, m.max_positions)};
  return c;
}

ModelConfig with_layers(const CommonConfig& c, const LayerNorms& norms, const VaryLayer& vary) {
  ModelConfig model = c.model;
  for (int32_t i = 0; i < c.num_layers; ++i) {
    AttentionConfig attention = c.attention;
    if (vary) vary(i, attention);
    model.layers.push_back({{norms.before_attention, norms.after_attention, attention},
                            {norms.before_mlp, norms.after_mlp, c.mlp}});
  }
  return model;
}

void put_experts(ModelConfig& model, const ExpertsConfig& experts,
                 const std::function<bool(int32_t layer)>& has) {
  int32_t i = 0;
  for (LayerConfig& layer : model.layers) {
    if (!has(i++)) continue;
    for (BlockConfig& b : layer)
      if (std::holds_alternative<MlpConfig>(b.block)) b.block = experts;
  }
}

RouterRule read_router(const ConfigReader& r) {
  constexpr const char* kNames[] = {"num_experts", "num_local_experts", "n_routed_experts"};
  RouterRule rule;
  for (const char* name : kNames) {
    if (r.find(name) == nullptr) continue;
    const auto count = static_cast<int32_t>(r.integer(name, 1, kMostExperts));
    if (rule.experts != 0 && rule.experts != count) {
      r.fail(format("%s is %d, and under another name the number of experts is %d", name, count,
                    rule.experts));
    }
    rule.experts = count;
  }
  if (rule.experts == 0) r.fail("the key num_experts is missing");
  rule.chosen = static_cast<int32_t>(
      r.integer("num_experts_per_tok", 1, std::min(rule.experts, kMostChosen)));
  return rule;
}

void read_groups(const ConfigReader& r, RouterRule& rule) {
  rule.groups = static_cast<int32_t>(r.integer("n_group", 1, rule.experts, 1));
  rule.chosen_groups = static_cast<int32_t>(r.integer("topk_group", 1, rule.groups, rule.groups));
  if (rule.experts % rule.groups != 0)
    r.fail(format("%d experts are not %d groups of equal size", rule.experts, rule.groups));
  if (rule.chosen > rule.experts / rule.groups * rule.chosen_groups)
    r.fail(format("%d groups of experts have fewer than num_experts_per_tok (%d)",
                  rule.chosen_groups, rule.chosen));
}

ModelConfig with_windows(const CommonConfig& c, const std::vector<int32_t>& windows) {
  return with_layers(c, {}, [&](int32_t i, AttentionConfig& a) {
    if (!windows.empty()) a.window = windows[static_cast<size_t>(i)];
  });
}

std::vector<int32_t> uniform_windows(const ConfigReader& r, int32_t num_layers, int32_t fallback) {
  const int64_t window =
      r.integer("sliding_window", 1, kMaxPositions, r.mentions("sliding_window") ? 0 : fallback);
  return std::vector<int32_t>(static_cast<size_t>(num_layers), static_cast<int32_t>(window));
}

std::vector<bool> sliding_layers(const ConfigReader& r, int32_t num_layers, int64_t period) {
  std::vector<bool> sliding(static_cast<size_t>(num_layers));
  const Json* types = r.find("layer_types");
  if (types != nullptr &&
      (!types->is(Json::Kind::kArray) || types->array.size() != sliding.size())) {
    r.fail(format("layer_types must be a list of num_hidden_layers (%d) names", num_layers));
  }
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (types == nullptr) {
      sliding[i] = static_cast<int64_t>(i + 1) % period != 0;
      continue;
    }
    const std::string& type = types->array[i].string;
    if (type != "full_attention" && type != "sliding_attention")
      r.unsupported("the layer type " + in_quotes(type) + " is not supported");
    sliding[i] = type == "sliding_attention";
  }
  return sliding;
}

std::vector<int32_t> chosen_windows(const ConfigReader& r, int32_t num_layers) {
  std::vector<int32_t> windows(static_cast<size_t>(num_layers), 0);
  if (!r.boolean("use_sliding_window", false)) return windows;
  const std::vector<int32_t> all = uniform_windows(r, num_layers, 4096);
  const int64_t first = r.integer("max_window_layers", 0, kMaxPositions, 28);
  const bool listed = r.find("layer_types") != nullptr;
  const std::vector<bool> sliding = sliding_layers(r, num_layers, 1);
  for (size_t i = 0; i < windows.size(); ++i)
    if (listed ? sliding[i] : static_cast<int64_t>(i) >= first) windows[i] = all[i];
  return windows;
}

}  // namespace inferd
