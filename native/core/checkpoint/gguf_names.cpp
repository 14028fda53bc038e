// See gguf_names.h. A new architecture is a line in kArchitectures, and one in config/gguf.
#include "core/checkpoint/gguf_names.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "core/checkpoint/gguf.h"
#include "core/checkpoint/json.h"
#include "core/error.h"

namespace inferd {
namespace {

struct Architecture {
  const char* name;
  // The name of the norm that Hugging Face calls post_attention_layernorm.
  const char* after_attention = "ffn_norm";
  // Rows of q and k are pairs of what is rotated together: 2i is row i of a head, 2i + 1 row i +
  // d/2.
  bool pairs = false;
  // What its files call other than the rest do, in full: the rules that fit first.
  NameMap own{};
};
const Architecture kArchitectures[] = {
    // Mixtral too, whose checkpoints have names of their own.
    {.name = "llama",
     .pairs = true,
     .own = {{"model.layers.{}.block_sparse_moe.gate.weight", "blk.{}.ffn_gate_inp.weight"},
             {"model.layers.{}.block_sparse_moe.experts.{}.w1.weight",
              "blk.{}.ffn_gate_exps.{}.weight"},
             {"model.layers.{}.block_sparse_moe.experts.{}.w2.weight",
              "blk.{}.ffn_down_exps.{}.weight"},
             {"model.layers.{}.block_sparse_moe.experts.{}.w3.weight",
              "blk.{}.ffn_up_exps.{}.weight"}}},
    {.name = "granite", .pairs = true},
    {.name = "smollm3", .pairs = true},
    {.name = "qwen2"},
    {.name = "qwen3"},
    {.name = "qwen3moe"},
    {.name = "gpt-oss", .after_attention = "post_attention_norm"},
    {.name = "deepseek2"},
    {.name = "phi3"},
    {.name = "olmo2", .after_attention = "post_attention_norm"},
    {.name = "gemma2", .after_attention = "post_attention_norm"},
    {.name = "gemma3", .after_attention = "post_attention_norm"},
};

// In a layer, less ".weight" and ".bias".
constexpr const char* kLayerNames[][2] = {
    {"input_layernorm", "attn_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.experts.{}.gate_proj", "ffn_gate_exps.{}"},
    {"mlp.experts.{}.up_proj", "ffn_up_exps.{}"},
    {"mlp.experts.{}.down_proj", "ffn_down_exps.{}"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
};

// With what follows the last dot.
constexpr const char* kFullNames[][2] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
};

}  // namespace

Dialect gguf_dialect(const GgufFile& file) {
  const std::string& name = file.architecture();
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const Architecture& a) { return name == a.name; });
  if (found == std::end(kArchitectures)) {
    std::string known;
    for (const Architecture& a : kArchitectures)
      known += (known.empty() ? "" : ", ") + std::string(a.name);
    throw Error(ErrorCode::kUnsupported, "The GGUF architecture " + in_quotes(name) +
                                             " is not supported; inferd knows " + known + ".");
  }
  Dialect d;
  d.names = found->own;
  for (const auto& [canonical, stored] : kFullNames) d.names.push_back({canonical, stored});
  const auto layer = [&](const std::string& canonical, const std::string& stored) {
    for (const char* part : {".weight", ".bias"})
      d.names.push_back({"model.layers.{}." + canonical + part, "blk.{}." + stored + part});
  };
  for (const auto& [canonical, stored] : kLayerNames) layer(canonical, stored);
  layer("post_attention_layernorm", found->after_attention);
  d.norms_hold_offset = true;
  if (found->pairs) {
    const int64_t heads = std::max<int64_t>(1, file.integer(name + ".attention.head_count", 1));
    const int64_t head_rows = file.integer(name + ".attention.key_length",
                                           file.integer(name + ".embedding_length", 0) / heads);
    if (head_rows < 2 || head_rows > 65536 || head_rows % 2 != 0)
      throw Error(ErrorCode::kBadModel, "The GGUF file says no size of attention heads.");
    d.paired_head_rows = head_rows;
  }
  return d;
}

}  // namespace inferd
