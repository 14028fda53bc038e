// Attention with grouped queries (Ainslie et al. 2023) over the paged cache:
//
//   q, k, v = qkv(before(hidden)); rope; hidden += after(output(attention(q, k, v)))
#pragma once
#include "models/blocks/block.h"

namespace inferd {

class AttentionBlock final : public Block {
 public:
  AttentionBlock(const ModelConfig& model, const BlockConfig& config,
                 const std::vector<RopeTable>& ropes, size_t kv_index);

  void describe(WeightList& list, const std::string& layer) override;
  void finish_loading(Backend& backend) override;
  void carve(Arena& arena, DType activation, int64_t max_tokens) override;
  void forward(Backend& backend, const StepContext& step, Stream& s, bool narrow) const override;
  NextReader reader() const override;
  const KvSpec* kv() const override { return &kv_; }
  LayerShape shape() const override;

 private:
  // hidden -> qkv, not rotated yet
  void project(Backend& backend, const Stream& s) const;

  // q and k by their norm over all heads, of which this rank has some.
  void norm_all_heads(Backend& backend, const Tensor& q, const Tensor& k) const;

  const ModelConfig& model_;
  AttentionConfig whole_;
  AttentionConfig config_;  // of this rank
  Residual residual_;
  KvSpec kv_;
  size_t kv_index_;
  RopeTable rope_{};
  Linear qkv_, output_;
  DeviceVector q_norm_, k_norm_, sinks_;
  Tensor qkv_rows_;  // [max_tokens, (heads + 2 kv_heads) * head_dim]
  Tensor attended_;  // [max_tokens, heads * head_dim]
  Tensor squares_;   // [max_tokens, 2] f32, with norms over heads of several ranks
};

}  // namespace inferd
