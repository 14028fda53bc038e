// A small model with the target's vocabulary as a drafter: it reads the tokens and nothing else.
#pragma once
#include "models/draft/drafter.h"

namespace inferd {

class DraftModel final : public Drafter {
 public:
  // Throws Error(kUnsupported) where its vocabulary has another size than the target's, but for
  // rows that fill tables up.
  DraftModel(ModelConfig config, Backend& backend, const Model& target, int64_t max_len);

  const ModelConfig& config() const override { return model_.config(); }
  const std::vector<KvSpec>& kv_specs() const override { return model_.kv_specs(); }
  const std::vector<LayerShape>& shapes() const override { return model_.shapes(); }
  void describe(DType dtype, FormatChoice format_of) override {
    model_.describe(dtype, std::move(format_of));
  }
  const std::vector<WeightPart>& parts() const override { return model_.parts(); }
  const std::vector<WeightFormat>& linear_formats() const override {
    return model_.linear_formats();
  }
  void finish_loading() override { model_.finish_loading(); }
  void carve(Arena& arena, int64_t max_tokens, int64_t max_rows, int64_t max_logit_rows) override;

  TargetStates reads() const override { return TargetStates::kNone; }
  int32_t lag() const override { return 0; }
  void follow(const StepContext& step, const Tensor& states) override;
  void pick(const int32_t*, int32_t) override {}
  void advance(const StepContext& step) override;
  Tensor logits(int32_t first, int32_t count) override;

 private:
  Model model_;
  int64_t shared_ids_ = 0;  // it drafts these; what else the target has it embeds as zeros
  Tensor states_;           // of the last advance()
};

}  // namespace inferd
