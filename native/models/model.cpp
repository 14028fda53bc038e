// See model.h.
#include "models/model.h"

#include <utility>

#include "models/config/rope.h"
#include "models/config/tensor_names.h"

namespace inferd {

std::vector<RopeTable> make_ropes(const std::vector<RopeConfig>& configs, Backend& backend,
                                  int64_t max_len, std::vector<DeviceBuffer>& memory) {
  std::vector<RopeTable> ropes;
  for (const RopeConfig& rope : configs) {
    const RopeFrequencies made = rope_frequencies(rope, max_len);
    const size_t bytes = made.inv_freq.size() * sizeof(float);
    const DeviceBuffer& own = memory.emplace_back(backend, static_cast<int64_t>(bytes));
    backend.upload(own.as<void>(), made.inv_freq.data(), bytes);
    ropes.push_back({own.as<float>(), made.attention_factor, rope.rotary_dim});
  }
  return ropes;
}

Model::Model(ModelConfig config, Backend& backend, int64_t max_len)
    : config_(std::move(config)), backend_(backend) {
  ropes_ = make_ropes(config_.ropes, backend, max_len, frequencies_);
  for (const LayerConfig& layer : config_.layers) {
    layers_.push_back({"model.layers." + std::to_string(layers_.size()) + ".", {}});
    for (const BlockConfig& block : layer) {
      auto made = make_block(config_, block, ropes_, kv_specs_.size());
      shapes_.push_back(made->shape());
      if (!next_readers_.empty()) next_readers_.back() = made->reader();
      next_readers_.push_back(NextReader::kAny);
      if (made->kv() != nullptr) {
        kv_specs_.push_back(*made->kv());
        kv_specs_.back().name = layers_.back().prefix + "self_attn.";
        last_mixing_ = made.get();
      }
      layers_.back().blocks.push_back(std::move(made));
    }
  }
}

void Model::describe(DType dtype, FormatChoice format_of) {
  list_ = std::make_unique<WeightList>(
      WeightList{backend_, dtype, std::move(format_of), config_.stacked, config_.paired});
  const std::vector<int64_t> table = {config_.vocab_size, config_.hidden_size};
  const auto own_rows = [&](const std::string& name) {
    const auto [first, count] = ids();
    return TensorSlice::whole(name, table).some_rows(first, count);
  };
  describe_embedding(own_rows(kEmbeddingTensor));
  for (const Layer& layer : layers_)
    for (const auto& block : layer.blocks) block->describe(*list_, layer.prefix);
  final_norm_.add(*list_, TensorSlice::whole("model.norm.weight", {config_.hidden_size}), true,
                  config_.norm_offset);
  const std::string head = std::string(kHeadLinear) + ".weight";
  // A small vocabulary may not reach the last ranks.
  if (ids().count > 0 && packed_ != &head_)
    head_.add_tensor(*list_, kHeadLinear,
                     own_rows(config_.tied_embeddings ? kEmbeddingTensor : head));
}

// Codes of the checkpoint stay codes, and a tied head's rows do for both, where the backend can
// look rows up in them and they are no other numbers than those of a table.
void Model::describe_embedding(const TensorSlice& table) {
  const bool tied = config_.tied_embeddings;
  const char* name = tied ? kHeadLinear : kEmbeddingLinear;
  if (ids().count > 0) {
    const WeightFormat format = list_->format_of(name, table);
    const bool same = is_coded(format) || (tied && format == plain_format(list_->dtype));
    if (same && backend_.embeds(format)) packed_ = tied ? &head_ : &codes_;
  }
  if (packed_ == nullptr) {
    embedding_.add(*list_, table);
  } else {
    Linear& rows = tied ? head_ : codes_;
    rows.look_up();
    rows.add_tensor(*list_, name, table);
  }
  if (packed_ != &head_ && table.rows > 0) table_bytes_ = bytes_of(list_->parts.back());
}

void Model::finish_loading() {
  for (const Layer& layer : layers_)
    for (const auto& block : layer.blocks) block->finish_loading(backend_);
}

std::vector<ExpertLoad> Model::expert_loads() const {
  std::vector<ExpertLoad> loads;
  for (const Layer& layer : layers_)
    for (const auto& block : layer.blocks)
      if (const auto load = block->expert_load()) loads.push_back(*load);
  return loads;
}

void Model::carve(Arena& arena, int64_t max_tokens, int64_t max_logit_rows) {
  const DType activation = backend_.info().activation;
  for (Tensor* t : {&stream_.hidden, &stream_.normed, &stream_.delta})
    *t = arena.take_matrix(activation, max_tokens, config_.hidden_size);
  if (!tapped_.empty()) {
    const auto taps = static_cast<int64_t>(tapped_.size());
    taps_ = arena.take_matrix(activation, max_tokens, taps * config_.hidden_size);
  }
  const int64_t shared = arena.mark();
  for (const Layer& layer : layers_) {
    for (const auto& block : layer.blocks) {
      block->carve(arena, activation, max_tokens);
      arena.rewind(shared);
    }
  }
  picked_ = arena.take_matrix(activation, max_logit_rows, config_.hidden_size);
  const int64_t width = shard().vocab_width(config_.vocab_size);
  logits_ = arena.take_matrix(DType::kF32, max_logit_rows, shard().size * width);
  if (!shard().whole()) part_ = arena.take_matrix(DType::kF32, max_logit_rows, width);
  arena.rewind(arena.peak());
}

void Model::embed(const Tensor& out, const int32_t* ids) const {
  const auto first_id = static_cast<int32_t>(this->ids().first);
  if (packed_ != nullptr) {
    backend_.embed_weight(out, *packed_->weight(), first_id, ids, config_.embedding_scale);
  } else {
    backend_.embed(out, embedding_.tensor(), first_id, ids, config_.embedding_scale);
  }
  if (!shard().whole()) backend_.all_reduce(out);
}

void Model::tap(std::vector<int32_t> layers) { tapped_ = std::move(layers); }

void Model::keep_tap(size_t layer, const Stream& s) const {
  const int64_t width = config_.hidden_size;
  for (size_t i = 0; i < tapped_.size(); ++i) {
    if (tapped_[i] != static_cast<int32_t>(layer)) continue;
    backend_.copy_rows(columns(head_rows(taps_, s.rows), static_cast<int64_t>(i) * width, width),
                       head_rows(s.hidden, s.rows));
  }
}

Tensor Model::forward(const StepContext& step) const {
  Stream s = stream_;
  s.rows = step.batch.num_tokens;
  s.adapters = step.batch.adapters;
  embed(head_rows(s.hidden, s.rows), step.batch.ids);
  auto next_reader = next_readers_.begin();
  for (size_t i = 0; i < layers_.size(); ++i) {
    keep_tap(i, s);
    for (const auto& block : layers_[i].blocks) {
      s.next_reader = *next_reader++;
      block->forward(backend_, step, s, block.get() == last_mixing_);
    }
  }
  keep_tap(layers_.size(), s);
  const Tensor states = head_rows(s.normed, s.rows);
  if (s.rows > 0) {
    backend_.rms_norm(states, head_rows(s.hidden, s.rows), final_norm_.data(), config_.norm_eps);
  }
  return states;
}

void Model::stand_by() const {
  for (const Layer& layer : layers_)
    for (const auto& block : layer.blocks) block->stand_by(backend_);
}

Tensor Model::own_logits(const Tensor& states, int32_t first, int32_t count) const {
  const int64_t own = ids().count;
  const Tensor logits = columns(head_rows(shard().whole() ? logits_ : part_, count), 0, own);
  if (own == 0) return logits;
  const int64_t skipped = first * states.cols() * dtype_bytes(states.dtype);
  head_.apply(backend_, {.out = logits,
                         .x = Tensor::matrix(states.as<std::byte>() + skipped, states.dtype, count,
                                             states.cols()),
                         .weight = nullptr});
  if (config_.logit_scale != 1 || config_.logit_softcap > 0)
    backend_.cap_logits(logits, config_.logit_scale, config_.logit_softcap);
  return logits;
}

// Shares lie side by side in the order of ids, so that what fills up the last ones is behind the
// vocabulary.
Tensor Model::logits(const Tensor& states, int32_t first, int32_t count) const {
  const Tensor own = own_logits(states, first, count);
  if (shard().whole()) return own;
  const Tensor all = head_rows(logits_, count);
  backend_.all_gather(all, head_rows(part_, count));
  return columns(all, 0, config_.vocab_size);
}

Tensor Model::picked_states(const Tensor& states, const int32_t* rows, int32_t count) const {
  const Tensor picked = head_rows(picked_, count);
  backend_.gather_rows(picked, states, rows, count);
  return picked;
}

Tensor Model::logits(const Tensor& states, const int32_t* rows, int32_t count) const {
  return logits(picked_states(states, rows, count), 0, count);
}

Tensor Model::own_logits(const Tensor& states, const int32_t* rows, int32_t count) const {
  return own_logits(picked_states(states, rows, count), 0, count);
}

}  // namespace inferd
