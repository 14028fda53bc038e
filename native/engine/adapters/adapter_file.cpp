// See adapter_file.h.
#include "engine/adapters/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <regex>

#include "core/checkpoint/json.h"
#include "core/checkpoint/mapped_file.h"
#include "core/checkpoint/safetensors.h"
#include "core/error.h"
#include "core/half.h"
#include "models/config/config.h"

namespace inferd {
namespace {

constexpr char kConfigFile[] = "/adapter_config.json";
constexpr char kTensorFile[] = "/adapter_model.safetensors";
constexpr char kPrefix[] = "base_model.model.";

// Settings that change what an adapter computes, which none but these values leaves as it is: null,
// false, nothing.
constexpr const char* kRefused[] = {"use_dora",          "modules_to_save",
                                    "lora_bias",         "fan_in_fan_out",
                                    "layer_replication", "trainable_token_indices",
                                    "target_parameters", "use_qalora",
                                    "use_bdlora",        "alora_invocation_tokens",
                                    "arrow_config",      "kasa_config",
                                    "monteclora_config", "velora_config"};

// Ways to begin that take what the factors hold out of the base's weights. PEFT does that again
// when it loads such an adapter, so that the factors alone say too much.
constexpr const char* kTakenFromBase[] = {"pissa", "corda", "olora", "loftq"};

void check_initialization(const ConfigReader& config) {
  const Json* init = config.find("init_lora_weights");
  if (init == nullptr || !init->is(Json::Kind::kString)) return;
  for (const char* taken : kTakenFromBase) {
    if (!init->string.starts_with(taken)) continue;
    config.unsupported("init_lora_weights is " + in_quotes(init->string) +
                       ", which changes the weights of the base model too; save the adapter as an "
                       "ordinary one (path_initial_model_for_weight_conversion of PEFT)");
  }
}

bool says_nothing(const Json& value) {
  switch (value.kind) {
    case Json::Kind::kNull:
      return true;
    case Json::Kind::kBool:
      return !value.boolean;
    case Json::Kind::kArray:
      return value.array.empty();
    case Json::Kind::kObject:
      return value.object.empty();
    default:
      return false;
  }
}

// How large a pattern becomes is bounded by its bytes: few parts repeat, not often, and none that
// holds one that does.
void check_pattern(const ConfigReader& config, const std::string& pattern) {
  constexpr size_t kMostBytes = 512;
  constexpr int kMostDigits = 2;
  constexpr int kMostRepeats = 4;
  int repeats = 0;
  bool large = pattern.size() > kMostBytes;
  char before = 'a';
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (std::string_view("*+{").find(c) != std::string_view::npos) {
      ++repeats;
      large = large || std::string_view(")*+?}").find(before) != std::string_view::npos;
      int digits = 0;
      for (size_t j = i + 1; c == '{' && j < pattern.size() && pattern[j] != '}'; ++j) {
        digits = pattern[j] >= '0' && pattern[j] <= '9' ? digits + 1 : 0;
        large = large || digits > kMostDigits;
      }
    }
    before = c;
    if (c != '\\') continue;
    before = 'a';
    ++i;
  }
  if (large || repeats > kMostRepeats)
    config.unsupported("the pattern " + in_quotes(pattern) +
                       " of alpha_pattern is not supported: it may have 512 bytes and repeat four "
                       "of its characters, up to 99 times each, but no group");
}

// Choices too can multiply what there is to try. libstdc++ can follow them all at once; libc++
// gives up by itself.
std::regex made_regex(const std::string& pattern) {
  auto syntax = std::regex::ECMAScript;
#ifdef __GLIBCXX__
  if (pattern.find_first_of("*+?{|") != std::string::npos)
    syntax |= std::regex_constants::__polynomial;
#endif
  return std::regex("(?:" + pattern + ")$", syntax);
}

// The settings that say how much an adapter adds.
class AdapterConfig {
 public:
  explicit AdapterConfig(const ConfigReader& config)
      : alpha_(config.number("lora_alpha", -1e6, 1e6)), root_(config.boolean("use_rslora", false)) {
    for (const char* key : kRefused) refuse(config, key);
    for (const Json::Member& m : config.root().object)
      if (m.name.starts_with("use_") && m.name != "use_rslora") refuse(config, m.name.c_str());
    const std::string type = config.string("peft_type", "");
    if (type != "LORA")
      config.unsupported("peft_type is " + in_quotes(type) + ", and only LORA is supported");
    const std::string bias = config.string("bias", "none");
    if (bias != "none")
      config.unsupported("bias is " + in_quotes(bias) + ", and only none is supported");
    check_initialization(config);
    const Json* patterns = config.find("alpha_pattern");
    if (patterns == nullptr) return;
    if (!patterns->is(Json::Kind::kObject)) config.fail("alpha_pattern must be an object");
    for (const Json::Member& m : patterns->object) {
      if (!m.value.is_number())
        config.fail("alpha_pattern gives " + in_quotes(m.name) + " no number");
      check_pattern(config, m.name);
      try {
        patterns_.push_back({made_regex(m.name), m.value.number});
      } catch (const std::regex_error&) {
        config.fail(in_quotes(m.name) + " in alpha_pattern is no regular expression");
      }
    }
  }

  // Of a module: the first pattern that the end of its name fits, from the start of a part on.
  double factor(const std::string& module, int32_t rank) const {
    double alpha = alpha_;
    for (const auto& [pattern, of_module] : patterns_) {
      if (!fits(pattern, module)) continue;
      alpha = of_module;
      break;
    }
    return alpha / (root_ ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  }

 private:
  static bool fits(const std::regex& pattern, const std::string& module) {
    for (size_t at = 0; at != std::string::npos;) {
      auto flags = std::regex_constants::match_continuous;
      if (at > 0) flags |= std::regex_constants::match_not_bol;  // "^" is the start of all of it
      if (std::regex_search(module.begin() + static_cast<std::ptrdiff_t>(at), module.end(), pattern,
                            flags))
        return true;
      at = module.find('.', at);
      if (at != std::string::npos) ++at;
    }
    return false;
  }
  static void refuse(const ConfigReader& config, const char* key) {
    const Json* value = config.find(key);
    if (value != nullptr && !says_nothing(*value))
      config.unsupported(std::string(key) + " is set, and such adapters are not supported");
  }

  double alpha_;
  bool root_;
  std::vector<std::pair<std::regex, double>> patterns_;
};

// The two tensors of a module.
struct Pair {
  const StoredTensor* a = nullptr;
  const StoredTensor* b = nullptr;
};

// By the names of modules.
std::map<std::string, Pair> pair_up(const SafetensorsFile& file, const ConfigReader& config) {
  std::map<std::string, Pair> pairs;
  for (const auto& [name, tensor] : file.tensors()) {
    const auto refused = [&, &name = name](const std::string& why) {
      config.unsupported("the tensor " + in_quotes(name) + " " + why);
    };
    if (name.find("lora_embedding_") != std::string::npos)
      refused("adds to an embedding, which is not supported");
    if (name.find("lora_magnitude_vector") != std::string::npos)
      refused("belongs to DoRA, which is not supported");
    constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
    const bool is_a = name.ends_with(kA);
    if (!name.starts_with(kPrefix) || (!is_a && !name.ends_with(kB)))
      refused(
          "is not one of an adapter that is supported: those end in lora_A.weight and "
          "lora_B.weight");
    if (!tensor.floating) refused("is " + tensor.dtype_name + ", not F32, F16 or BF16");
    if (tensor.shape.size() != 2) config.fail(in_quotes(name) + " is no matrix");
    const size_t prefix = std::string_view(kPrefix).size();
    Pair& pair = pairs[name.substr(prefix, name.size() - prefix - kA.size())];
    (is_a ? pair.a : pair.b) = &tensor;
  }
  if (pairs.empty()) config.fail("its tensors are none");
  return pairs;
}

using Targets = std::map<std::string, std::vector<std::pair<size_t, const AdapterTarget*>>>;

Targets targets_by_name(const std::vector<Linear*>& linears) {
  Targets targets;
  for (size_t i = 0; i < linears.size(); ++i)
    for (const AdapterTarget& t : linears[i]->targets()) targets[t.name].emplace_back(i, &t);
  return targets;
}

// An adapter that was made for the model without its head, as for embeddings, names modules such as
// "layers.0.mlp.up_proj".
std::string whole_name(const std::string& module) {
  return module.starts_with("layers.") ? "model." + module : module;
}

void check_pair(const ConfigReader& config, const std::string& module, const Pair& pair,
                const AdapterTarget& target, int32_t max_rank) {
  const std::string at = in_quotes(module);
  if (pair.a == nullptr || pair.b == nullptr)
    config.fail(at + " has only one of lora_A and lora_B");
  const std::vector<int64_t>&a = pair.a->shape, &b = pair.b->shape;
  if (a[1] != target.cols || b[0] != target.rows || a[0] != b[1]) {
    config.fail(at + " has lora_A " + shape_text(a) + " and lora_B " + shape_text(b) +
                ", which do not fit the weight " + shape_text({target.rows, target.cols}) +
                " of this model");
  }
  if (a[0] < 1 || a[0] > max_rank) {
    config.unsupported(format("%s has rank %lld, and lora.max_rank is %d", at.c_str(),
                              static_cast<long long>(a[0]), max_rank));
  }
}

// The format promises no alignment of what the file holds.
float element(const StoredTensor& tensor, int64_t index) {
  const auto bytes = static_cast<size_t>(dtype_bytes(tensor.dtype));
  alignas(float) std::byte one[sizeof(float)] = {};
  std::memcpy(one, tensor.data + static_cast<size_t>(index) * bytes, bytes);
  return load_f32(one, tensor.dtype, 0);
}

// What this rank has of a pair: all of A's columns that it has inputs for, and the rows of B of its
// outputs.
AdapterFactors take(const Pair& pair, const AdapterTarget& t, const std::vector<float>& norm,
                    double factor) {
  AdapterFactors f{
      .section = t.section, .rank = static_cast<int32_t>(pair.a->shape[0]), .a = {}, .b = {}};
  f.a.reserve(static_cast<size_t>(f.rank * t.inputs.count));
  for (int64_t r = 0; r < f.rank; ++r) {
    for (int64_t c = 0; c < t.inputs.count; ++c) {
      const float value = element(*pair.a, r * t.cols + t.inputs.first + c);
      f.a.push_back(norm.empty() ? value : value * norm[static_cast<size_t>(c)]);
    }
  }
  f.b.reserve(static_cast<size_t>(t.outputs * f.rank));
  for (int64_t i = 0; i < t.outputs; ++i)
    for (int64_t r = 0; r < f.rank; ++r)
      f.b.push_back(static_cast<float>(factor * element(*pair.b, t.stored_row(i) * f.rank + r)));
  return f;
}

// A factor that is not finite spoils every answer of the adapter's rows without a word.
void check_finite(const ConfigReader& config, const std::string& module, const AdapterFactors& f) {
  const auto finite = [](float v) { return std::isfinite(v); };
  if (!std::all_of(f.a.begin(), f.a.end(), finite) || !std::all_of(f.b.begin(), f.b.end(), finite))
    config.fail(in_quotes(module) + " has values that are no finite numbers");
}

}  // namespace

Adapter read_adapter(const std::string& folder, const std::vector<Linear*>& linears,
                     int32_t max_rank, const std::atomic<bool>& cancelled) {
  const std::string config_path = folder + kConfigFile, tensor_path = folder + kTensorFile;
  const MappedFile text(config_path);
  const Json root = Json::parse(text.text(), config_path);
  if (!root.is(Json::Kind::kObject))
    throw Error(ErrorCode::kBadModel, config_path + " is not a JSON object.");
  const ConfigReader config(root, config_path);
  const AdapterConfig settings(config);
  if (!file_exists(tensor_path) && file_exists(folder + "/adapter_model.bin"))
    config.unsupported(
        "its tensors are in adapter_model.bin, a pickle that could run code; save "
        "them as adapter_model.safetensors");
  const SafetensorsFile file(tensor_path);
  const Targets targets = targets_by_name(linears);

  Adapter adapter;
  adapter.base = config.string("base_model_name_or_path", "");
  std::map<size_t, std::vector<AdapterFactors>> of_linears;
  for (const auto& [module, pair] : pair_up(file, config)) {
    if (cancelled) throw Error(ErrorCode::kClosed, "The adapter is not wanted any more.");
    const auto found = targets.find(whole_name(module));
    if (found == targets.end())
      config.unsupported("it adds to " + in_quotes(module) +
                         ", which is no linear layer of this model that adapters may add to");
    for (const auto& [linear, target] : found->second) {
      check_pair(config, module, pair, *target, max_rank);
      const auto rank = static_cast<int32_t>(pair.a->shape[0]);
      std::vector<AdapterFactors>& factors = of_linears[linear];
      for (const AdapterFactors& f : factors)
        if (f.section == target->section) config.fail("it adds to " + in_quotes(module) + " twice");
      factors.push_back(
          take(pair, *target, linears[linear]->norm(), settings.factor(module, rank)));
      check_finite(config, module, factors.back());
      adapter.rank = std::max(adapter.rank, rank);
      adapter.bytes +=
          static_cast<int64_t>((factors.back().a.size() + factors.back().b.size()) * sizeof(float));
    }
    ++adapter.modules;
  }
  for (auto& [linear, factors] : of_linears)
    adapter.linears.push_back({linear, std::move(factors)});
  return adapter;
}

}  // namespace inferd
