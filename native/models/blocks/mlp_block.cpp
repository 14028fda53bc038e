// See mlp_block.h.
#include "models/blocks/mlp_block.h"

namespace inferd {

MlpBlock::MlpBlock(const ModelConfig& model, const BlockConfig& config)
    : model_(model),
      config_(std::get<MlpConfig>(config.block)),
      inner_(model.shard.features(config_.intermediate_size)),
      residual_(model, config),
      gate_up_(Epilogue::kGated, config_.gate),
      down_(residual_.epilogue()) {}

void MlpBlock::describe(WeightList& list, const std::string& layer) {
  const MlpConfig& c = config_;
  const std::string at = layer + "mlp.";
  const int64_t hidden = model_.hidden_size, inner = c.intermediate_size;
  residual_.describe(list, layer, model_);
  gate_up_.add(list, at, {{"gate_proj", inner, inner_}, {"up_proj", inner, inner_}}, Inputs(hidden),
               c.bias);
  // The ranks' products are added up: a bias belongs to one of them.
  down_.add(list, at, {{"down_proj", hidden}}, {inner, inner_}, c.bias && model_.shard.rank == 0);
}

void MlpBlock::finish_loading(Backend& backend) {
  residual_.fold(backend, gate_up_);
  gate_up_.hand_bias(backend);
  down_.hand_bias(backend);
}

void MlpBlock::carve(Arena& arena, DType activation, int64_t max_tokens) {
  gate_up_rows_ = arena.take_matrix(activation, max_tokens, 2 * inner_.count);
  activated_ = arena.take_matrix(activation, max_tokens, inner_.count);
}

LayerShape MlpBlock::shape() const {
  return {.hidden_size = model_.hidden_size, .intermediate_size = inner_.count};
}

void MlpBlock::forward(Backend& backend, const StepContext&, Stream& s, bool) const {
  if (s.rows == 0) return;
  const Tensor activated = head_rows(activated_, s.rows);
  residual_.read(backend, s, gate_up_, activated, head_rows(gate_up_rows_, s.rows));
  residual_.write(backend, s, down_, activated);
}

}  // namespace inferd
