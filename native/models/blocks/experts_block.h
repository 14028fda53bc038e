// A mixture of experts (core/experts.h), and beside it, where a model has one, an MLP that all
// tokens pass:
//
//   x = before(hidden); hidden += after(sum over the chosen experts of weight * expert(x) +
//   shared(x))
//
// or with a gate of its own, one number a token, sigmoid(gate x) shared(x).
//
// Of several ranks each has its share of the features of every expert, or all of some experts
// (Shard); of the shared MLP always a share of the features. The router is whole on every rank and
// gives the same bits there, so that without a word all know which experts compute what; each rank
// adds what its share gives, nothing for tokens that chose none of its experts, and the sum over
// the ranks, which the block has anyway, brings it together.
//
// Ranks that attend to sequences of their own (Shard::spread) have rows of their own. Each brings
// its rows and what its router says of them, all ranks see all rows and compute the experts they
// hold, and what they give comes back to the owner of a row, summed in the order of ranks. A rank
// without rows does the same for those of the others. The shared MLP stays with the owner.
#pragma once
#include <string>
#include <vector>

#include "models/blocks/block.h"

namespace inferd {

class ExpertsBlock final : public Block {
 public:
  ExpertsBlock(const ModelConfig& model, const BlockConfig& config);

  void describe(WeightList& list, const std::string& layer) override;
  void finish_loading(Backend& backend) override;
  void carve(Arena& arena, DType activation, int64_t max_tokens) override;
  void forward(Backend& backend, const StepContext& step, Stream& s, bool narrow) const override;
  void stand_by(Backend& backend) const override;
  LayerShape shape() const override;
  std::optional<ExpertLoad> expert_load() const override;

 private:
  // Rows that go through the experts held here.
  struct Mix {
    Tensor x, logits;
    const int32_t* positions;  // RouteArgs
    Tensor out;
    bool add_to_out;
  };

  bool has_shared() const { return config_.shared_size > 0; }
  bool spreads() const { return model_.shard.spreads(); }
  // Rows of all ranks with rows of their own, for `tokens` of one.
  int64_t rows_of_ranks(int64_t tokens) const { return tokens * model_.shard.spread.ranks; }
  void forward_spread(Backend& backend, const Stream& s) const;
  // What the experts of all ranks make of the rows `x`, to `out`; of no rows too.
  void mix_spread(Backend& backend, const Tensor& x, const Tensor& logits, const Tensor& out) const;
  void mix(Backend& backend, const Mix& m) const;
  Tensor route_logits(Backend& backend, const Tensor& x, const Stream& s) const;
  int64_t parameters_of_one() const;  // of one expert, as all ranks hold it
  void add_shared(Backend& backend, const Tensor& x, const Stream& s, const Tensor& out) const;

  const ModelConfig& model_;
  ExpertsConfig config_;
  Share held_;    // experts whose weights this rank has
  Share inner_;   // features of each of them
  Share shared_;  // features of the shared MLP
  Residual residual_;
  Linear router_;
  DeviceVector correction_;
  Linear gate_up_, down_;  // of all experts held: ExpertArgs
  Linear shared_gate_up_, shared_down_;
  Linear shared_gate_;

  Tensor logits_;         // [max_tokens, experts] float32
  DeviceBuffer offsets_;  // of `routing_`: kept between steps, for expert_load
  Routing routing_{};
  Tensor all_rows_, all_logits_, all_sums_;                // of all ranks, where they are spread
  Tensor gathered_, products_, activated_, downs_, sums_;  // ExpertArgs
  Tensor shared_rows_, shared_activated_;  // [max_tokens, 2 * shared], [max_tokens, shared]
  Tensor shared_logits_;                   // [max_tokens, 1] float32, of the gate
};

}  // namespace inferd
