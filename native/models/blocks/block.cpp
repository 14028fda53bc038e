// See block.h.
#include "models/blocks/block.h"

#include <utility>

#include "models/blocks/attention_block.h"
#include "models/blocks/experts_block.h"
#include "models/blocks/latent_attention_block.h"
#include "models/blocks/mlp_block.h"

namespace inferd {

void Residual::describe(WeightList& list, const std::string& layer, const ModelConfig& model) {
  const auto add = [&](DeviceVector& norm, const std::string& name) {
    if (!name.empty())
      norm.add(list, TensorSlice::whole(layer + name + ".weight", {model.hidden_size}), true,
               model.norm_offset);
  };
  add(before_, config_.norm_before);
  add(after_, config_.norm_after);
}

void Residual::read(Backend& backend, const Stream& s, const Linear& linear, Tensor out,
                    Tensor scratch) const {
  const NormArgs norm{
      .scratch = head_rows(s.normed, s.rows), .weight = before_.data(), .eps = eps_};
  linear.apply(backend, {.out = out,
                         .x = head_rows(s.hidden, s.rows),
                         .weight = nullptr,
                         .norm = config_.norm_before.empty() ? nullptr : &norm,
                         .scratch = scratch,
                         .adapters = s.adapters});
}

Tensor Residual::read(Backend& backend, const Stream& s) const {
  const Tensor hidden = head_rows(s.hidden, s.rows), normed = head_rows(s.normed, s.rows);
  if (config_.norm_before.empty()) return hidden;
  backend.rms_norm(normed, hidden, before_.data(), eps_);
  return normed;
}

void Residual::write(Backend& backend, const Stream& s, const Linear& linear,
                     const Tensor& x) const {
  const Tensor hidden = head_rows(s.hidden, s.rows), delta = head_rows(s.delta, s.rows);
  if (plain_) {
    linear.apply(
        backend,
        {.out = hidden, .x = x, .weight = nullptr, .scratch = delta, .adapters = s.adapters});
    return;
  }
  const LinearArgs args{.out = delta, .x = x, .weight = nullptr, .adapters = s.adapters};
  if (summed_at_once()) return linear.reduce_add(backend, args, hidden, scale_, s.next_reader);
  linear.store(backend, args);
  write(backend, s);
}

void Residual::write(Backend& backend, const Stream& s) const {
  const Tensor hidden = head_rows(s.hidden, s.rows), delta = head_rows(s.delta, s.rows);
  if (summed_at_once()) return backend.all_reduce_add(hidden, delta, scale_);
  const bool normed = !config_.norm_after.empty();
  if (!whole_) backend.all_reduce(delta);
  const Tensor added = normed ? head_rows(s.normed, s.rows) : delta;
  if (normed) backend.rms_norm(added, delta, after_.data(), eps_);
  backend.add(hidden, added, scale_);
}

Tensor pick_rows(Backend& backend, const Picks& picks, Stream& s, const Tensor& attended,
                 const Tensor& free) {
  std::swap(s.hidden, s.normed);
  const auto gather = [&](const Tensor& to, const Tensor& from) {
    backend.gather_rows(head_rows(to, picks.count), head_rows(from, s.rows), picks.rows,
                        picks.count);
  };
  gather(s.hidden, s.normed);
  const Tensor picked = Tensor::matrix(free.data, attended.dtype, picks.count, attended.cols());
  gather(picked, attended);
  s.rows = picks.count;
  s.adapters = picks.adapters;
  return picked;
}

std::unique_ptr<Block> make_block(const ModelConfig& model, const BlockConfig& config,
                                  const std::vector<RopeTable>& ropes, size_t kv_index) {
  if (std::holds_alternative<AttentionConfig>(config.block))
    return std::make_unique<AttentionBlock>(model, config, ropes, kv_index);
  if (std::holds_alternative<LatentAttentionConfig>(config.block))
    return std::make_unique<LatentAttentionBlock>(model, config, ropes, kv_index);
  if (std::holds_alternative<ExpertsConfig>(config.block))
    return std::make_unique<ExpertsBlock>(model, config);
  return std::make_unique<MlpBlock>(model, config);
}

}  // namespace inferd
