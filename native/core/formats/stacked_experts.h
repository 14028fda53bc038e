// Experts that a checkpoint holds in one tensor for all of a layer, read as if each had matrices of
// its own. With E experts, H inputs and I inner features of each:
//
//   M.gate_up_proj  [E, H, 2 I] or [E, 2 I, H]    M.down_proj  [E, I, H] or [E, H, I]
//   M.gate_up_proj_bias  [E, 2 I]                 M.down_proj_bias  [E, H]
//   MXFP4: M.gate_up_proj_blocks U8 [E, 2 I, H / 32, 16], the lower half is the even input;
//          M.gate_up_proj_scales U8 [E, 2 I, H / 32], e8m0; the same of down_proj
//
// where M is "model.layers.0.mlp.experts".
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/formats/weight_source.h"

namespace inferd {

// What shapes do not tell.
struct ExpertLayout {
  bool stacked = false;     // such tensors are the usual form, also in MXFP4
  bool in_turn = false;     // rows of gate and up alternate; else those of gate come first
  bool transposed = false;  // square matrices are [inputs, outputs]; else they lie as the others do
};

// Of "M.3.up_proj.weight", or gate_proj, or down_proj, or ".bias", of that expert's own shape. Null
// when no such tensor is there. Throws Error(kBadModel) where one does not fit the shape.
WeightSourcePtr open_stacked_expert(const Checkpoint& checkpoint, const std::string& name,
                                    const std::vector<int64_t>& shape, const ExpertLayout& layout);

}  // namespace inferd
