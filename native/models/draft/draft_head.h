// A head on hidden states of the target as a drafter: one layer that joins, at each place i, the
// state that the target has there with the token behind it, and so predicts the one behind that.
//
//   left = norm(embed(token i + 1)); right = norm(state i), state from the target or fed back
//   hidden = fuse([left; right]), or right, with attention that reads [left; right]
//   hidden -> attention -> MLP or experts; logits = head(norm(hidden))
//
// Which norms and linears there are is data, so that the heads of EAGLE (Li et al. 2024), of
// EAGLE-3 (Li et al. 2025) and the layers for multi-token prediction of DeepSeek-V3 (2024) are one
// class: head_config.h.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/draft/drafter.h"
#include "models/draft/head_config.h"

namespace inferd {

class DraftHead final : public Drafter {
 public:
  // `target` outlives it.
  DraftHead(DraftHeadConfig config, Backend& backend, const Model& target, int64_t max_len);

  const ModelConfig& config() const override { return config_.model; }
  const std::vector<KvSpec>& kv_specs() const override { return kv_specs_; }
  const std::vector<LayerShape>& shapes() const override { return shapes_; }
  void describe(DType dtype, FormatChoice format_of) override;
  const std::vector<WeightPart>& parts() const override { return list_->parts; }
  const std::vector<WeightFormat>& linear_formats() const override { return list_->linear_formats; }
  void finish_loading() override;
  void carve(Arena& arena, int64_t max_tokens, int64_t max_rows, int64_t max_logit_rows) override;

  TargetStates reads() const override { return config_.reads; }
  int32_t lag() const override { return 1; }
  void follow(const StepContext& step, const Tensor& states) override;
  void pick(const int32_t* rows, int32_t count) override;
  void advance(const StepContext& step) override;
  Tensor logits(int32_t first, int32_t count) override;
  const int32_t* target_ids() const override { return target_ids_.as<int32_t>(); }

 private:
  // Gives what is fed back, of all tokens of the step.
  Tensor run(const StepContext& step, const Tensor& states);
  void embed(const Tensor& out, const int32_t* ids) const;

  DraftHeadConfig config_;
  Backend& backend_;
  const Model& target_;
  std::vector<DeviceBuffer> frequencies_;
  std::vector<RopeTable> ropes_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<LayerShape> shapes_;
  std::vector<KvSpec> kv_specs_;

  std::unique_ptr<WeightList> list_;
  EmbeddingTable embedding_;
  DeviceVector token_norm_, state_norm_, out_norm_;
  Linear reduce_, fuse_, head_;
  DeviceBuffer target_ids_;

  Stream stream_;    // [max_tokens, hidden] each, and joined
  Tensor followed_;  // what is fed back of all tokens of the step
  Tensor reduced_;   // [max_tokens, hidden] of the taps
  Tensor fed_;       // [max_rows, hidden] what is fed back of the rows that draft
  Tensor normed_;    // [max_logit_rows, hidden]
  Tensor logits_;    // [max_logit_rows, vocab] f32, of a head of its own
};

}  // namespace inferd
