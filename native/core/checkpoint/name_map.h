// Names of tensors. Models speak canonical names, which are those of Hugging Face checkpoints:
// "model.layers.3.mlp.up_proj.weight". A checkpoint that has other names comes with a map, which
// only the loader applies.
#pragma once
#include <string>
#include <vector>

namespace inferd {

// Patterns, both with as many "{}", each of which stands for a number, in the same order, or with
// one "*" at the end, which stands for the rest of the name:
//   "model.layers.{}.mlp.up_proj.weight" -> "blk.{}.ffn_up.weight"
//   "model.*"                            -> "language_model.model.*"
struct NameRule {
  std::string canonical, stored;
};

// The first rule that fits decides; a name that none fits is stored as it is.
using NameMap = std::vector<NameRule>;

std::string stored_name(const NameMap& map, const std::string& canonical);

}  // namespace inferd
