// What config.json says about a decoder-only transformer, in one struct for all architectures.
//
// ConfigReader gives typed, range-checked access with errors that name the key. `read_common` fills
// what every architecture shares; the architecture's own file (llama.cpp, ...) sets the rest. Both
// key layouts are read: the older (`rope_theta`, `rope_scaling`, `torch_dtype`) and the newer
// (`rope_parameters`, `dtype`).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/checkpoint/json.h"
#include "core/checkpoint/name_map.h"
#include "core/experts.h"
#include "core/formats/stacked_experts.h"
#include "core/formats/stored_quantization.h"
#include "core/gate.h"
#include "core/tensor.h"
#include "models/config/shard.h"

namespace inferd {

struct RopeConfig {
  enum class Type { kDefault, kLinear, kLlama3, kLongRope, kYarn };
  Type type = Type::kDefault;
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_positions = 0;
  std::optional<double> attention_factor;  // longrope, yarn: as given, else derived
  std::vector<double> short_factors;       // longrope: [rotary_dim / 2]
  std::vector<double> long_factors;
  // yarn: turns within the original context from which frequencies stay, and up to which they are
  // divided; whether the ramp between them begins and ends at whole frequencies
  double beta_fast = 32, beta_slow = 1;
  bool whole_ramp = true;
  double mscale = 0, mscale_all_dim = 0;  // yarn: 0 = not given
  int32_t rotary_dim = 0;                 // <= head_dim
  int32_t head_dim = 0;
  int64_t max_positions = 0;  // of the model
};

// Which RMS norm q and k pass before rope.
enum class QkNorm { kNone, kEachHead, kAllHeads };

// Attention with grouped queries: softmax(scale q . k) v.
struct AttentionConfig {
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  float scale = 0;
  float softcap = 0;    // of scores: AttentionArgs::softcap
  int32_t window = 0;   // 0 = full attention
  bool sinks = false;   // AttentionArgs::sinks
  bool joined = false;  // q, k and v are made of Stream::joined, in place of the residual stream
  int32_t rope = 0;     // of ModelConfig::ropes; kNoRope: positions are not encoded

  int64_t q_size() const { return int64_t{heads} * head_dim; }
  int64_t kv_size() const { return int64_t{kv_heads} * head_dim; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
  // Of one rank.
  AttentionConfig share(const Shard& shard) const {
    AttentionConfig part = *this;
    part.heads = static_cast<int32_t>(shard.of(heads).count);
    part.kv_heads = static_cast<int32_t>(shard.kv_heads(kv_heads).count);
    return part;
  }
};
constexpr int32_t kNoRope = -1;

// Attention whose keys and values are made from one vector of `rank` values a token, the latent c,
// and `rope_dim` values of position that all heads share (multi-head latent attention, DeepSeek-V2,
// 2024). Head h: q_h = [nope | rope], k_h = [W_k,h c | k_rope], v_h = W_v,h c.
struct LatentAttentionConfig {
  int32_t heads = 0;
  int32_t query_rank = 0;  // of q_b_proj(norm(q_a_proj(x))); 0: q_proj(x)
  int32_t rank = 0;
  int32_t nope_dim = 0, rope_dim = 0, value_dim = 0;  // of a head
  float scale = 0;
  float norm_eps = 1e-6f;  // of the norms of c and of what q is made from
  int32_t window = 0;      // 0 = full attention
  int32_t rope = 0;        // of ModelConfig::ropes, over rope_dim

  int32_t query_dim() const { return nope_dim + rope_dim; }
  int32_t cached_dim() const { return rank + rope_dim; }
};

// down(gate(g) * u), where [g | u] = gate_up(x).
struct MlpConfig {
  int64_t intermediate_size = 0;
  bool bias = false;
  Gate gate = Gate::kSilu;
};

// Names of tensors inside the layer: "mlp.gate.weight", "mlp.experts.3.up_proj.weight",
// "mlp.shared_experts.up_proj.weight".
struct ExpertNames {
  std::string block = "mlp.";
  std::string router = "gate";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string shared = "shared_experts", shared_gate = "shared_expert_gate";
};

// The sum of the MLPs of some experts, which a router chooses for each token, and of one that all
// tokens pass: core/experts.h.
struct ExpertsConfig {
  RouterRule rule;
  int64_t intermediate_size = 0;  // of an expert
  int64_t shared_size = 0;        // of the shared MLP; 0: none
  bool shared_gate = false;       // shared(x) * sigmoid(<shared_gate> x) in place of shared(x)
  bool router_bias = false;
  bool correction = false;  // of the choice: <router>.e_score_correction_bias
  bool bias = false;        // of the experts
  Gate gate = Gate::kSilu;
  ExpertNames names{};
};

// hidden += residual_scale * after(block(before(hidden))). Norms are named by their tensor inside
// the layer, such as "input_layernorm"; "" where there is none.
struct BlockConfig {
  std::string norm_before, norm_after;
  std::variant<AttentionConfig, LatentAttentionConfig, MlpConfig, ExpertsConfig> block;
};

using LayerConfig = std::vector<BlockConfig>;

// Linears of a block that checkpoints hold as one, by rows in this order: the tensors of "q_proj",
// "k_proj" and "v_proj" as sections of that of "qkv_proj".
struct StackedTensor {
  std::string name;
  std::vector<std::string> sections;
};

// A linear whose checkpoints hold the rows that are rotated together side by side, where it wants
// them in two halves: of every `head_rows` rows those from `first` on.
struct PairedRows {
  std::string linear;  // "self_attn.q_proj"
  int64_t head_rows, first;
  bool of_model = true;  // so have adapters; else it is a way of this checkpoint alone
};

// Names of the checkpoints that hold the tensor `holds`.
struct OtherNames {
  std::string holds;
  NameMap names;
};

// A decoder-only transformer as data: what config.json of every architecture comes down to.
struct ModelConfig {
  std::string architecture;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_positions = 0;
  float norm_eps = 0;
  float norm_offset = 0;  // norms multiply by it plus their weight
  bool tied_embeddings = false;
  float embedding_scale = 1;
  float residual_scale = 1;  // of what each block adds
  float logit_scale = 1;
  float logit_softcap = 0;     // 0 = none, else logits l become c tanh(l / c)
  std::optional<DType> dtype;  // the weights' dtype as announced; the files decide
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;
  std::vector<StackedTensor> stacked;  // what checkpoints hold as one tensor
  NameMap names;                       // of checkpoints that have names of their own
  std::optional<OtherNames> newer;     // of checkpoints of a later generation
  StoredQuantization stored;           // of checkpoints that are quantized
  ExpertLayout expert_layout;          // of experts that checkpoints hold as one tensor
  std::vector<PairedRows> paired;      // of linears that positions rotate
  Shard shard;                         // what is computed here; all other fields are of the whole

  // The window of every attention block, in order.
  template <typename Visit>
  void each_window(Visit&& visit) {
    for (LayerConfig& layer : layers) {
      for (BlockConfig& b : layer) {
        if (auto* attention = std::get_if<AttentionConfig>(&b.block)) visit(attention->window);
        if (auto* latent = std::get_if<LatentAttentionConfig>(&b.block)) visit(latent->window);
      }
    }
  }
};

constexpr int64_t kMaxSize = 1 << 20;  // hidden, intermediate

class ConfigReader {
 public:
  ConfigReader(const Json& root, std::string path) : root_(root), path_(std::move(path)) {}

  const Json& root() const { return root_; }
  const std::string& path() const { return path_; }
  // Null when absent or `null`.
  const Json* find(const char* key) const { return root_.find(key); }
  // The key is there, be it `null`.
  bool mentions(const char* key) const;
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

// What the architectures of one layer shape share: sizes, heads, norms, embeddings, one rope, and
// attention and MLP as config.json's usual keys describe them. A model's file changes what it has
// of its own.
struct CommonConfig {
  ModelConfig model;          // without layers
  AttentionConfig attention;  // of every layer, with full attention
  MlpConfig mlp;
  int32_t num_layers = 0;
};

// `tied` says what a config without tie_word_embeddings means. Throws Error(kBadModel) or, for what
// no code here computes, Error(kUnsupported).
CommonConfig read_common(const ConfigReader& reader, bool tied = false);
// The same but for attention and ropes, of architectures that have another attention.
CommonConfig read_sizes(const ConfigReader& reader, bool tied = false);

// Where a layer has norms, by the names of their tensors: as most architectures have them.
struct LayerNorms {
  std::string before_attention = "input_layernorm", after_attention;
  std::string before_mlp = "post_attention_layernorm", after_mlp;
};

// Layers of attention and MLP; `vary` changes what is not the same in all of them.
using VaryLayer = std::function<void(int32_t layer, AttentionConfig& attention)>;
ModelConfig with_layers(const CommonConfig& common, const LayerNorms& norms = {},
                        const VaryLayer& vary = {});
// The usual layers; `windows` [num_layers], or empty: full attention.
ModelConfig with_windows(const CommonConfig& common, const std::vector<int32_t>& windows);

// Puts experts in place of the MLP of each layer that `has` them, counted from 0.
void put_experts(ModelConfig& model, const ExpertsConfig& experts,
                 const std::function<bool(int32_t layer)>& has);
// The number of experts, under whichever of its names; how many a token goes to.
RouterRule read_router(const ConfigReader& reader);
// The groups of DeepSeek's routers, n_group and topk_group, which may be absent.
void read_groups(const ConfigReader& reader, RouterRule& rule);

// The window of every layer when `sliding` says which layers have one, as qwen2 and qwen3 do:
// `use_sliding_window` switches it on, `layer_types` or else `max_window_layers` choose the layers.
std::vector<int32_t> chosen_windows(const ConfigReader& reader, int32_t num_layers);
// The same window in every layer; `fallback` (0 = full) when the key is absent, full when it is
// null.
std::vector<int32_t> uniform_windows(const ConfigReader& reader, int32_t num_layers,
                                     int32_t fallback);
// True for the layers that `layer_types` calls sliding; without that key, for all but every
// `period`-th.
std::vector<bool> sliding_layers(const ConfigReader& reader, int32_t num_layers, int64_t period);

}  // namespace inferd
