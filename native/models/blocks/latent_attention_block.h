// Multi-head latent attention (DeepSeek-V2, 2024; core/latent.h) over a cache of one vector a
// token and layer, whatever the number of heads:
//
//   x = before(hidden)
//   q = q_proj(x), or q_b_proj(norm(q_a_proj(x)))
//   [c | k_rope] = kv_a_proj(x)
//   cache <- [norm(c) | rope(k_rope)]
//   hidden += after(output(attention))
//
// A head h attends with the query [W_k,h^T q_nope | rope(q_rope)]; W_v,h is applied to what comes
// out.
//
// kv_b_proj, whose rows are W_k,h and W_v,h of each head in turn, is kept as two weights: the first
// transposed. Of several ranks each has some heads; all keep the same cache.
#pragma once
#include <string>
#include <vector>

#include "models/blocks/block.h"

namespace inferd {

class LatentAttentionBlock final : public Block {
 public:
  LatentAttentionBlock(const ModelConfig& model, const BlockConfig& config,
                       const std::vector<RopeTable>& ropes, size_t kv_index);

  void describe(WeightList& list, const std::string& layer) override;
  void finish_loading(Backend& backend) override;
  void carve(Arena& arena, DType activation, int64_t max_tokens) override;
  void forward(Backend& backend, const StepContext& step, Stream& s, bool narrow) const override;
  const KvSpec* kv() const override { return &kv_; }
  LayerShape shape() const override;

 private:
  // One of the two halves of kv_b_proj: a matrix for each head of this rank.
  class HeadMatrices {
   public:
    // Matrices [outputs, inputs], made of rows [first_row, first_row + rows) of each head's share
    // of `tensor`, that of the linear `name`, which has `head_rows` rows a head: as they are, or
    // transposed. Once.
    void add(WeightList& list, const std::string& name, const TensorSlice& tensor, Share heads,
             int64_t head_rows, Share rows, bool transposed);
    void apply(Backend& backend, HeadLinearArgs args) const;

   private:
    void store(Backend& backend, int64_t head, int64_t row, const Tensor& source);

    PackedWeightPtr weight_;
    WeightSpec spec_;
    int64_t outputs_ = 0;
    bool transposed_ = false;
    std::vector<float> pending_;  // rows of a head that is being transposed
  };

  // hidden -> queries_, and the cache
  void project(Backend& backend, const StepContext& step, const Stream& s) const;

  const ModelConfig& model_;
  LatentAttentionConfig config_;
  Share heads_;  // of this rank
  Residual residual_;
  KvSpec kv_;
  size_t kv_index_;
  RopeTable rope_;
  Linear input_;  // [q_a_proj or q_proj | kv_a_proj_with_mqa]
  Linear query_;  // q_b_proj, where there is one
  Linear output_;
  HeadMatrices keys_, values_;
  DeviceVector query_norm_, latent_norm_;

  Tensor input_rows_;    // [max_tokens, rows of input_]
  Tensor query_normed_;  // [max_tokens, query_rank]
  Tensor query_rows_;    // [max_tokens, heads * query_dim], with q_b_proj
  Tensor queries_;       // [max_tokens, heads * cached_dim]
  Tensor attended_;      // [max_tokens, heads * rank]
  Tensor outputs_;       // [max_tokens, heads * value_dim]
};

}  // namespace inferd
