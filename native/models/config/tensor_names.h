// Canonical names (core/checkpoint/name_map.h) that more than one file speaks of.
#pragma once

namespace inferd {

constexpr const char* kEmbeddingTensor = "model.embed_tokens.weight";
// The linear of the output head, also where its weight is that of the embedding.
constexpr const char* kHeadLinear = "lm_head";

}  // namespace inferd
