// See draft_head.h.
#include "models/draft/draft_head.h"

#include <algorithm>
#include <utility>

#include "models/config/rope.h"

namespace inferd {

DraftHead::DraftHead(DraftHeadConfig config, Backend& backend, const Model& target, int64_t max_len)
    : config_(std::move(config)), backend_(backend), target_(target) {
  ropes_ = make_ropes(config_.model.ropes, backend, max_len, frequencies_);
  for (const BlockConfig& block : config_.model.layers.at(0)) {
    auto made = make_block(config_.model, block, ropes_, kv_specs_.size());
    shapes_.push_back(made->shape());
    if (made->kv() != nullptr) kv_specs_.push_back(*made->kv());
    blocks_.push_back(std::move(made));
  }
  if (!config_.target_ids.empty()) {
    const auto bytes = config_.target_ids.size() * sizeof(int32_t);
    target_ids_ = DeviceBuffer(backend, static_cast<int64_t>(bytes));
    backend.upload(target_ids_.as<void>(), config_.target_ids.data(), bytes);
  }
}

void DraftHead::describe(DType dtype, FormatChoice format_of) {
  const DraftHeadConfig& c = config_;
  const int64_t hidden = c.model.hidden_size;
  list_ = std::make_unique<WeightList>(
      WeightList{backend_, dtype, std::move(format_of), c.model.stacked, c.model.paired});
  if (!c.embedding.empty())
    embedding_.add(*list_, TensorSlice::whole(c.embedding + ".weight", {c.ids, hidden}));
  const auto norm = [&](DeviceVector& vector, const std::string& name) {
    if (!name.empty())
      vector.add(*list_, TensorSlice::whole(name + ".weight", {hidden}), true, c.model.norm_offset);
  };
  norm(token_norm_, c.token_norm);
  norm(state_norm_, c.state_norm);
  norm(out_norm_, c.out_norm);
  const auto linear = [&](Linear& made, const std::string& name, int64_t rows, int64_t cols) {
    if (!name.empty()) made.add(*list_, "", {{name, rows}}, Inputs(cols), c.fuse_bias);
  };
  linear(reduce_, c.reduce, hidden, c.reduced);
  linear(fuse_, c.fuse, hidden, 2 * hidden);
  for (const auto& block : blocks_) block->describe(*list_, c.layer);
  if (!c.head.empty())
    head_.add_tensor(*list_, c.head,
                     TensorSlice::whole(c.head + ".weight", {c.model.vocab_size, hidden}));
}

void DraftHead::finish_loading() {
  reduce_.hand_bias(backend_);
  fuse_.hand_bias(backend_);
  for (const auto& block : blocks_) block->finish_loading(backend_);
}

void DraftHead::carve(Arena& arena, int64_t max_tokens, int64_t max_rows, int64_t max_logit_rows) {
  const DType activation = backend_.info().activation;
  const int64_t hidden = config_.model.hidden_size, tokens = std::max(max_tokens, max_rows);
  const auto take = [&](int64_t rows, int64_t cols) {
    return arena.take_matrix(activation, rows, cols);
  };
  for (Tensor* t : {&stream_.hidden, &stream_.normed, &stream_.delta}) *t = take(tokens, hidden);
  stream_.joined = take(tokens, 2 * hidden);
  if (!config_.reduce.empty()) reduced_ = take(tokens, hidden);
  fed_ = take(max_rows, hidden);
  normed_ = take(max_logit_rows, hidden);
  if (!config_.head.empty())
    logits_ = arena.take_matrix(DType::kF32, max_logit_rows, config_.model.vocab_size);
  const int64_t shared = arena.mark();
  for (const auto& block : blocks_) {
    block->carve(arena, activation, tokens);
    arena.rewind(shared);
  }
  arena.rewind(arena.peak());
}

void DraftHead::embed(const Tensor& out, const int32_t* ids) const {
  if (config_.embedding.empty()) return target_.embed(out, ids);
  backend_.embed(out, embedding_.tensor(), 0, ids, 1);
}

Tensor DraftHead::run(const StepContext& step, const Tensor& states) {
  const DraftHeadConfig& c = config_;
  const int64_t hidden = c.model.hidden_size;
  Stream s = stream_;
  s.rows = step.batch.num_tokens;
  s.joined = head_rows(s.joined, s.rows);
  const Tensor stream = head_rows(s.hidden, s.rows), tokens = head_rows(s.delta, s.rows);
  const Tensor left = columns(s.joined, 0, hidden), right = columns(s.joined, hidden, hidden);
  const auto join = [&](const Tensor& to, const Tensor& from, const DeviceVector& norm) {
    if (norm.data() == nullptr) return backend_.copy_rows(to, from);
    backend_.rms_norm(to, from, norm.data(), c.model.norm_eps);
  };
  embed(tokens, step.batch.ids);
  join(left, tokens, token_norm_);
  join(right, states, state_norm_);
  if (!c.fuse.empty()) {
    fuse_.store(backend_, {.out = stream, .x = s.joined, .weight = nullptr});
  } else {
    backend_.copy_rows(stream, c.normed_residual ? right : states);
  }
  for (const auto& block : blocks_) block->forward(backend_, step, s, false);
  if (!c.feeds_normed) return stream;
  const Tensor normed = head_rows(s.normed, s.rows);
  backend_.rms_norm(normed, stream, out_norm_.data(), c.model.norm_eps);
  return normed;
}

void DraftHead::follow(const StepContext& step, const Tensor& states) {
  Tensor of_target = states;
  if (!config_.reduce.empty()) {
    of_target = head_rows(reduced_, step.batch.num_tokens);
    reduce_.store(backend_, {.out = of_target, .x = states, .weight = nullptr});
  }
  followed_ = run(step, of_target);
}

void DraftHead::pick(const int32_t* rows, int32_t count) {
  backend_.gather_rows(head_rows(fed_, count), followed_, rows, count);
}

void DraftHead::advance(const StepContext& step) {
  const Tensor fed = head_rows(fed_, step.batch.num_tokens);
  backend_.copy_rows(fed, run(step, fed));
}

Tensor DraftHead::logits(int32_t first, int32_t count) {
  const int64_t hidden = config_.model.hidden_size;
  Tensor x = Tensor::matrix(fed_.as<std::byte>() + first * hidden * dtype_bytes(fed_.dtype),
                            fed_.dtype, count, hidden);
  if (out_norm_.data() != nullptr && !config_.feeds_normed) {
    const Tensor normed = head_rows(normed_, count);
    backend_.rms_norm(normed, x, out_norm_.data(), config_.model.norm_eps);
    x = normed;
  }
  if (config_.head.empty()) return target_.logits(x, 0, count);
  const Tensor logits = head_rows(logits_, count);
  head_.apply(backend_, {.out = logits, .x = x, .weight = nullptr});
  return logits;
}

}  // namespace inferd
