// The gated feed-forward block (Shazeer 2020):
//
//   hidden += after(down(gate(g) * u)), [g | u] = gate_up(before(hidden))
#pragma once
#include "models/blocks/block.h"

namespace inferd {

class MlpBlock final : public Block {
 public:
  MlpBlock(const ModelConfig& model, const BlockConfig& config);

  void describe(WeightList& list, const std::string& layer) override;
  void finish_loading(Backend& backend) override;
  void carve(Arena& arena, DType activation, int64_t max_tokens) override;
  void forward(Backend& backend, const StepContext& step, Stream& s, bool narrow) const override;
  NextReader reader() const override { return residual_.one_reader(); }
  LayerShape shape() const override;

 private:
  const ModelConfig& model_;
  MlpConfig config_;
  Share inner_;  // features of this rank
  Residual residual_;
  Linear gate_up_, down_;
  Tensor gate_up_rows_;  // [max_tokens, 2 * inner]
  Tensor activated_;     // [max_tokens, inner]
};

}  // namespace inferd
