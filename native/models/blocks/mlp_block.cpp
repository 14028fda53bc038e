// See mlp_block.h.
#include "models/blocks/mlp_block.h"

namespace inferd {

MlpBlock::MlpBlock(const ModelConfig& model, const BlockConfig& config)
    : model_(model),
      config_(std::get<MlpConfig>(config.block)),
      residual_(model, config),
      gate_up_(Epilogue::kGated, config_.gate),
      down_(residual_.epilogue()) {}

void MlpBlock::describe(WeightList& list, const std::string& layer) {
  const MlpConfig& c = config_;
  const std::string at = layer + "mlp.";
  const int64_t hidden = model_.hidden_size, inner = c.intermediate_size;
  residual_.describe(list, layer, model_);
  gate_up_.add(list, at, {{"gate_proj", inner}, {"up_proj", inner}}, hidden, c.bias);
  down_.add(list, at, {{"down_proj", hidden}}, inner, c.bias);
}

void MlpBlock::finish_loading(Backend& backend) {
  residual_.fold(backend, gate_up_);
  gate_up_.hand_bias(backend);
  down_.hand_bias(backend);
}

void MlpBlock::carve(Arena& arena, DType activation, int64_t max_tokens) {
  gate_up_rows_ = arena.take_matrix(activation, max_tokens, 2 * config_.intermediate_size);
  activated_ = arena.take_matrix(activation, max_tokens, config_.intermediate_size);
}

LayerShape MlpBlock::shape() const {
  return {.hidden_size = model_.hidden_size, .intermediate_size = config_.intermediate_size};
}

void MlpBlock::forward(Backend& backend, const StepContext&, Stream& s, bool) const {
  if (s.rows == 0) return;
  const Tensor activated = head_rows(activated_, s.rows);
  residual_.read(backend, s, gate_up_, activated, head_rows(gate_up_rows_, s.rows));
  residual_.write(backend, s, down_, activated);
}

}  // namespace inferd
