// What a head that drafts is made of, read from its own folder or from the target's.
//
//   EAGLE-3   a folder with config.json and tensors "midlayer.*" or "layers.0.*", "fc", "norm",
//             "lm_head", "d2t"; config.json of the hub's layout, or of speculators' with the layer
//             in transformer_layer_config; without use_aux_hidden_state there is no "fc"
//   EAGLE     the same with "layers.0.*" and "fc" alone: no norm ahead of attention, the head of
//             the target, and its embedding where there is none
//   MTP       the layer behind the last one of a DeepSeek checkpoint
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "models/config/config.h"
#include "models/draft/drafter.h"

namespace inferd {

// Tensors and linears by the names that the checkpoint has; "" where there is none.
struct DraftHeadConfig {
  ModelConfig model;      // sizes, ropes, and its one layer; vocab_size: what it has logits of
  std::string layer;      // prefix of the tensors of the layer
  int64_t ids = 0;        // of the target's vocabulary
  std::string embedding;  // "": the target's
  std::string token_norm, state_norm;  // ahead of the join
  std::string reduce;                  // from the states that it reads to its own size
  int64_t reduced = 0;                 // inputs of that
  std::string fuse;                    // of both joined
  bool fuse_bias = false;              // of whichever of the two there is
  bool normed_residual = false;        // without fuse: the stream begins behind state_norm
  std::string out_norm;                // ahead of the head
  bool feeds_normed = false;           // what is fed back is behind out_norm
  std::string head;                    // "": the target's
  TargetStates reads = TargetStates::kLast;
  std::vector<int32_t> taps;        // of the target's layers: Model::tap
  std::vector<int32_t> target_ids;  // Drafter::target_ids, or empty
};

// Of the folder `path`; `checkpoint` is null when weights are dummies. Throws Error(kBadModel) or,
// for what no code here computes or does not fit the target, Error(kUnsupported).
DraftHeadConfig read_eagle_head(const std::string& path, const Checkpoint* checkpoint,
                                const ModelConfig& target);
// Of the target's own checkpoint.
DraftHeadConfig read_mtp_layer(const Checkpoint* checkpoint, const ModelConfig& target);

}  // namespace inferd
