// See latent_attention_block.h.
#include "models/blocks/latent_attention_block.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/half.h"

namespace inferd {

void LatentAttentionBlock::HeadMatrices::add(WeightList& list, const std::string& name,
                                             const TensorSlice& tensor, Share heads,
                                             int64_t head_rows, Share rows, bool transposed) {
  transposed_ = transposed;
  outputs_ = transposed ? tensor.cols : rows.count;
  // Codes have scales of rows and columns that are taken apart here: such weights are widened.
  const WeightFormat wanted = list.format_of(name, tensor);
  spec_ = {.rows = heads.count * stacked_rows(outputs_),
           .cols = transposed ? rows.count : tensor.cols,
           .format = wanted.scaled ? plain_format(list.dtype) : wanted};
  for (int64_t h = 0; h < heads.count; ++h) {
    list.parts.push_back(
        {.slice = tensor.some_rows((heads.first + h) * head_rows + rows.first, rows.count),
         .kept = spec_.format,
         .store = [this, h, &backend = list.backend](int64_t row, const Tensor& source) {
           store(backend, h, row, source);
         }});
  }
}

void LatentAttentionBlock::HeadMatrices::store(Backend& backend, int64_t head, int64_t row,
                                               const Tensor& source) {
  if (weight_ == nullptr) weight_ = backend.make_weight(spec_);
  const int64_t at = head * stacked_rows(outputs_);
  if (!transposed_) return backend.fill_weight(*weight_, WeightRole::kCodes, at + row, source);
  const int64_t inputs = spec_.cols, count = source.rows();
  pending_.resize(static_cast<size_t>(inputs * outputs_));
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < outputs_; ++c) {
      pending_[static_cast<size_t>(c * inputs + row + r)] =
          load_f32(source.data, source.dtype, r * outputs_ + c);
    }
  }
  if (row + count < inputs) return;
  backend.fill_weight(*weight_, WeightRole::kCodes, at,
                      Tensor::matrix(pending_.data(), DType::kF32, outputs_, inputs));
  std::vector<float>().swap(pending_);
}

void LatentAttentionBlock::HeadMatrices::apply(Backend& backend, HeadLinearArgs args) const {
  args.weight = weight_.get();
  args.outputs = outputs_;
  backend.head_linear(args);
}

LatentAttentionBlock::LatentAttentionBlock(const ModelConfig& model, const BlockConfig& config,
                                           const std::vector<RopeTable>& ropes, size_t kv_index)
    : model_(model),
      config_(std::get<LatentAttentionConfig>(config.block)),
      heads_(model.shard.of(config_.heads)),
      residual_(model, config),
      kv_{.kv_heads = 1, .head_dim = config_.cached_dim(), .arrays = 1, .all_heads = 1},
      kv_index_(kv_index),
      rope_(ropes[static_cast<size_t>(config_.rope)]),
      output_(residual_.epilogue()) {}

void LatentAttentionBlock::describe(WeightList& list, const std::string& layer) {
  const LatentAttentionConfig& c = config_;
  const std::string at = layer + "self_attn.";
  const int64_t hidden = model_.hidden_size, query_size = int64_t{c.heads} * c.query_dim();
  const Share queries = heads_.times(c.query_dim());
  residual_.describe(list, layer, model_);
  const Section latent("kv_a_proj_with_mqa", c.cached_dim());
  const auto norm = [&](DeviceVector& vector, const char* name, int64_t size) {
    vector.add(list, TensorSlice::whole(at + name, {size}), true, model_.norm_offset);
  };
  if (c.query_rank == 0) {
    input_.add(list, at, {{"q_proj", query_size, queries}, latent}, Inputs(hidden), false);
  } else {
    input_.add(list, at, {{"q_a_proj", c.query_rank}, latent}, Inputs(hidden), false);
    norm(query_norm_, "q_a_layernorm.weight", c.query_rank);
    query_.add(list, at, {{"q_b_proj", query_size, queries}}, Inputs(c.query_rank), false);
  }
  norm(latent_norm_, "kv_a_layernorm.weight", c.rank);
  const int64_t head_rows = int64_t{c.nope_dim} + c.value_dim;
  const std::string linear = at + "kv_b_proj";
  const TensorSlice kv_b = TensorSlice::whole(linear + ".weight", {c.heads * head_rows, c.rank});
  keys_.add(list, linear, kv_b, heads_, head_rows, {0, c.nope_dim}, true);
  values_.add(list, linear, kv_b, heads_, head_rows, {c.nope_dim, c.value_dim}, false);
  output_.add(list, at, {{"o_proj", hidden}},
              {int64_t{c.heads} * c.value_dim, heads_.times(c.value_dim)}, false);
}

// The inner norms stay as they are: theirs are parts of wider rows.
void LatentAttentionBlock::finish_loading(Backend& backend) { residual_.fold(backend, input_); }

void LatentAttentionBlock::carve(Arena& arena, DType activation, int64_t max_tokens) {
  const LatentAttentionConfig& c = config_;
  const int64_t heads = heads_.count, query_size = heads * c.query_dim();
  const int64_t first = c.query_rank > 0 ? c.query_rank : query_size;
  const auto take = [&](int64_t cols) { return arena.take_matrix(activation, max_tokens, cols); };
  input_rows_ = take(first + c.cached_dim());
  if (c.query_rank > 0) {
    query_normed_ = take(c.query_rank);
    query_rows_ = take(query_size);
  }
  queries_ = take(heads * c.cached_dim());
  attended_ = take(heads * c.rank);
  outputs_ = take(heads * c.value_dim);
}

LayerShape LatentAttentionBlock::shape() const {
  return {.hidden_size = model_.hidden_size,
          .heads = static_cast<int32_t>(heads_.count),
          .kv_heads = 1,
          .head_dim = config_.cached_dim(),
          .rotary_dim = config_.rope_dim,
          .value_dim = config_.rank};
}

void LatentAttentionBlock::project(Backend& backend, const StepContext& step,
                                   const Stream& s) const {
  const LatentAttentionConfig& c = config_;
  const auto heads = static_cast<int32_t>(heads_.count);
  const Tensor rows = head_rows(input_rows_, s.rows);
  residual_.read(backend, s, input_, rows, {});
  const int64_t first = rows.cols() - c.cached_dim();
  Tensor q = columns(rows, 0, first);
  if (c.query_rank > 0) {
    const NormArgs norm{.scratch = head_rows(query_normed_, s.rows),
                        .weight = query_norm_.data(),
                        .eps = c.norm_eps};
    const Tensor wide = head_rows(query_rows_, s.rows);
    query_.apply(backend,
                 {.out = wide, .x = q, .weight = nullptr, .norm = &norm, .adapters = s.adapters});
    q = wide;
  }
  const Tensor queries = head_rows(queries_, s.rows);
  backend.latent_rope_and_cache({.q = q,
                                 .latent = columns(rows, first, c.cached_dim()),
                                 .queries = queries,
                                 .norm = latent_norm_.data(),
                                 .norm_eps = c.norm_eps,
                                 .heads = heads,
                                 .nope_dim = c.nope_dim,
                                 .kv = step.kv[kv_index_],
                                 .rope = rope_},
                                step.slots, step.batch);
  keys_.apply(backend, {.out = queries,
                        .x = q,
                        .weight = nullptr,
                        .heads = heads,
                        .out_step = c.cached_dim(),
                        .x_step = c.query_dim()});
}

void LatentAttentionBlock::forward(Backend& backend, const StepContext& step, Stream& s,
                                   bool narrow) const {
  const LatentAttentionConfig& c = config_;
  project(backend, step, s);
  const Picks* picks = narrow ? step.picks : nullptr;
  if (picks != nullptr && picks->count == 0) {
    s.rows = 0;
    return;
  }
  Tensor attended = head_rows(attended_, s.rows);
  backend.attention({.out = attended,
                     .qkv = head_rows(queries_, s.rows),
                     .heads = static_cast<int32_t>(heads_.count),
                     .kv = step.kv[kv_index_],
                     .value_dim = c.rank,
                     .scale = c.scale,
                     .window = c.window,
                     .picks = picks},
                    step.slots, step.batch);
  // The queries are not needed any more.
  if (picks != nullptr) attended = pick_rows(backend, *picks, s, attended, queries_);
  const Tensor outputs = head_rows(outputs_, s.rows);
  values_.apply(backend, {.out = outputs,
                          .x = attended,
                          .weight = nullptr,
                          .heads = static_cast<int32_t>(heads_.count),
                          .out_step = c.value_dim,
                          .x_step = c.rank});
  residual_.write(backend, s, output_, outputs);
}

}  // namespace inferd
