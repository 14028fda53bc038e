// See head_config.h.
#include "models/draft/head_config.h"

#include <algorithm>
#include <cstring>

#include "core/checkpoint/mapped_file.h"
#include "core/error.h"

namespace inferd {
namespace {

constexpr const char* kTable = "embed_tokens";

// Read: "<id of the target> = <column> + d2t[<column>]".
std::vector<int32_t> read_target_ids(const StoredTensor& offsets, int64_t columns, int64_t ids,
                                     const ConfigReader& r) {
  if (offsets.dtype_name != "I64" || offsets.shape != std::vector<int64_t>{columns})
    r.fail(
        format("the tensor d2t must be %lld numbers of type I64", static_cast<long long>(columns)));
  std::vector<int32_t> out;
  for (int64_t i = 0; i < columns; ++i) {
    int64_t offset = 0;
    std::memcpy(&offset, offsets.data + i * 8, sizeof offset);
    if (offset < -ids || offset > ids || i + offset < 0 || i + offset >= ids)
      r.fail(format("the tensor d2t leads outside of the vocabulary at %lld",
                    static_cast<long long>(i)));
    out.push_back(static_cast<int32_t>(i + offset));
  }
  return out;
}

// Whether an EAGLE-3 head reads states of layers; else those that the target's head reads.
bool reads_layers(const ConfigReader& r) {
  const Json* inner = r.find("eagle_config");
  return inner == nullptr || r.nested("eagle_config", *inner).boolean("use_aux_hidden_state", true);
}

// Layers whose states it reads, rising.
std::vector<int32_t> read_taps(const ConfigReader& r, int32_t layers) {
  constexpr const char* kIds = "eagle_aux_hidden_state_layer_ids";
  const Json* inner = r.find("eagle_config");
  const Json* ids = r.find(kIds);
  if (ids == nullptr && inner != nullptr) ids = inner->find(kIds);
  std::vector<int32_t> taps;
  if (ids == nullptr) {
    taps = {2, layers / 2, layers - 3};
  } else {
    if (!ids->is(Json::Kind::kArray) || ids->array.empty() || ids->array.size() > 16)
      r.fail(std::string(kIds) + " must be a list of at most 16 layers");
    for (const Json& id : ids->array) {
      if (!id.is(Json::Kind::kInteger)) r.fail(std::string(kIds) + " must hold whole numbers");
      taps.push_back(static_cast<int32_t>(std::clamp<int64_t>(id.integer, -1, layers + 1)));
    }
  }
  std::sort(taps.begin(), taps.end());
  for (const int32_t tap : taps) {
    if (tap < 0 || tap > layers)
      r.fail(format("it reads the states of layer %d, and the model has %d", tap, layers));
  }
  return taps;
}

DraftHeadConfig read_head(const ConfigReader& outer, const Checkpoint* checkpoint,
                          const ModelConfig& target) {
  const Json* inner = outer.find("transformer_layer_config");
  const ConfigReader r =
      inner == nullptr ? outer : outer.nested("transformer_layer_config", *inner);
  const CommonConfig common = read_common(r);
  if (common.num_layers != 1)
    r.unsupported(format("a head of %d layers is not supported", common.num_layers));
  const auto has = [&](const std::string& name) {
    return checkpoint != nullptr && checkpoint->find(name + ".weight") != nullptr;
  };
  if (has("fc_norm")) r.unsupported("heads with the tensor fc_norm (EAGLE-3.1) are not supported");

  DraftHeadConfig c;
  c.model = common.model;
  c.ids = target.vocab_size;
  c.layer = has("midlayer.mlp.up_proj") ? "midlayer." : "layers.0.";
  if (has(kTable)) c.embedding = kTable;
  AttentionConfig attention = common.attention;
  // Whatever else lies beside them: some heads of the first generation bring the target's own head.
  const bool eagle3 = checkpoint == nullptr || has(c.layer + "input_layernorm");
  if (checkpoint != nullptr) {
    // Configs of the first generation say it in other words than models do, or not at all.
    const auto biased = [&](const char* linear) {
      return checkpoint->find(c.layer + "self_attn." + linear + ".bias") != nullptr;
    };
    attention.qkv_bias = biased("q_proj") || biased("k_proj") || biased("v_proj");
    attention.output_bias = biased("o_proj");
  }
  if (!eagle3) {
    c.fuse = "fc";
    c.fuse_bias = checkpoint->find("fc.bias") != nullptr;
    c.model.vocab_size = target.vocab_size;
  } else {
    attention.joined = true;
    if (reads_layers(outer)) {
      c.reads = TargetStates::kTaps;
      c.taps = read_taps(outer, static_cast<int32_t>(target.layers.size()));
      c.reduce = "fc";
      c.reduced = static_cast<int64_t>(c.taps.size()) * target.hidden_size;
      c.fuse_bias = checkpoint != nullptr && checkpoint->find("fc.bias") != nullptr;
    }
    c.token_norm = c.layer + "input_layernorm";
    c.state_norm = c.layer + "hidden_norm";
    c.normed_residual = outer.boolean("norm_before_residual", false);
    c.out_norm = "norm";
    c.head = "lm_head";
    c.model.vocab_size = outer.integer("draft_vocab_size", 1, target.vocab_size, target.vocab_size);
    const StoredTensor* offsets = checkpoint == nullptr ? nullptr : checkpoint->find("d2t");
    if (offsets != nullptr)
      c.target_ids = read_target_ids(*offsets, c.model.vocab_size, c.ids, outer);
    else if (checkpoint != nullptr && c.model.vocab_size != c.ids)
      outer.fail("draft_vocab_size is smaller than the model's vocabulary, and there is no d2t");
  }
  const bool same_size = c.model.hidden_size == target.hidden_size;
  if (!same_size && (c.reduce.empty() || c.embedding.empty())) {
    outer.unsupported(format(
        "its hidden_size is %lld and the model's %lld, which is not the model "
        "that it was made for",
        static_cast<long long>(c.model.hidden_size), static_cast<long long>(target.hidden_size)));
  }
  c.model.layers = {{{"", "", attention}, {"post_attention_layernorm", "", common.mlp}}};
  return c;
}

}  // namespace

DraftHeadConfig read_eagle_head(const std::string& path, const Checkpoint* checkpoint,
                                const ModelConfig& target) {
  const std::string at = path + "/config.json";
  const MappedFile file(at);
  const Json root = Json::parse(file.text(), at);
  if (!root.is(Json::Kind::kObject))
    throw Error(ErrorCode::kBadModel, at + " is not a JSON object.");
  return read_head({root, at}, checkpoint, target);
}

DraftHeadConfig read_mtp_layer(const Checkpoint* checkpoint, const ModelConfig& target) {
  DraftHeadConfig c;
  c.model = target;
  c.model.shard = {};
  c.model.layers = {target.layers.back()};
  c.ids = target.vocab_size;
  c.layer = "model.layers." + std::to_string(target.layers.size()) + ".";
  c.token_norm = c.layer + "enorm";
  c.state_norm = c.layer + "hnorm";
  c.fuse = c.layer + "eh_proj";
  c.out_norm = c.layer + "shared_head.norm";
  c.feeds_normed = true;
  const std::string fuse = stored_name(target.names, c.fuse + ".weight");
  if (checkpoint != nullptr && checkpoint->find(fuse) == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "The checkpoint has no layer for multi-token prediction: " + fuse +
                    " is missing; set speculative.method = \"ngram\" or \"none\".");
  }
  return c;
}

}  // namespace inferd
