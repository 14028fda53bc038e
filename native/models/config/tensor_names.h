// Canonical names (core/checkpoint/name_map.h) that more than one file speaks of.
#pragma once

namespace inferd {

constexpr const char* kEmbeddingTensor = "model.embed_tokens.weight";
constexpr const char* kEmbeddingLinear = "model.embed_tokens";
// The linear of the output head, also where its weight is that of the embedding.
constexpr const char* kHeadLinear = "lm_head";

}  // namespace inferd
