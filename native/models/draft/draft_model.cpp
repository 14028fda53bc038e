// See draft_model.h.
#include "models/draft/draft_model.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace inferd {
namespace {

// Models of one tokenizer fill their tables up to different sizes.
constexpr int64_t kMostFilling = 1024;

}  // namespace

DraftModel::DraftModel(ModelConfig config, Backend& backend, const Model& target, int64_t max_len)
    : model_(std::move(config), backend, max_len) {
  const int64_t own = model_.config().vocab_size, wanted = target.config().vocab_size;
  shared_ids_ = std::min(own, wanted);
  if (std::max(own, wanted) - shared_ids_ <= kMostFilling) return;
  throw Error(ErrorCode::kUnsupported,
              format("The draft model has a vocabulary of %lld tokens and the model one of %lld; a "
                     "draft model needs the tokenizer of the model that it drafts for.",
                     static_cast<long long>(own), static_cast<long long>(wanted)));
}

void DraftModel::carve(Arena& arena, int64_t max_tokens, int64_t max_rows, int64_t max_logit_rows) {
  model_.carve(arena, std::max(max_tokens, max_rows), max_logit_rows);
}

// Its keys and values are all that is wanted.
void DraftModel::follow(const StepContext& step, const Tensor&) {
  const Picks none = {.rows = nullptr, .host_rows = nullptr, .count = 0};
  model_.forward({.kv = step.kv, .slots = step.slots, .batch = step.batch, .picks = &none});
}

void DraftModel::advance(const StepContext& step) { states_ = model_.forward(step); }

Tensor DraftModel::logits(int32_t first, int32_t count) {
  return columns(model_.logits(states_, first, count), 0, shared_ids_);
}

}  // namespace inferd
