// See loader.h.
#include "engine/loader.h"

#include <algorithm>
#include <cstring>

#include "core/dummy_weight.h"
#include "core/error.h"
#include "core/half.h"

namespace inferd {
namespace {

// Pieces start at multiples of this, where repacked layouts have whole panels.
constexpr int64_t kRowStep = 64;

}  // namespace

WeightLoader::WeightLoader(const std::vector<WeightPart>& parts,
                           std::unique_ptr<Checkpoint> checkpoint)
    : parts_(parts), checkpoint_(std::move(checkpoint)) {
  check();
  for (size_t i = 0; i < parts_.size(); ++i) total_bytes_ += parts_[i].rows() * row_bytes(i);
}

WeightLoader::WeightLoader(const std::vector<WeightPart>& parts, DType dtype)
    : parts_(parts), dummy_dtype_(dtype) {
  for (size_t i = 0; i < parts_.size(); ++i) total_bytes_ += parts_[i].rows() * row_bytes(i);
}

void WeightLoader::check() {
  constexpr size_t kNamed = 4;
  std::vector<std::string> missing;
  for (const WeightPart& part : parts_) {
    const StoredTensor* t = checkpoint_->find(part.name);
    sources_.push_back(t);
    if (t == nullptr) {
      missing.push_back(part.name);
      continue;
    }
    if (t->shape != part.shape) {
      throw Error(
          ErrorCode::kBadModel,
          format("The tensor %s has the shape %s, and config.json asks for %s.", part.name.c_str(),
                 shape_text(t->shape).c_str(), shape_text(part.shape).c_str()));
    }
    if (!t->floating) {
      throw Error(ErrorCode::kBadModel,
                  format("The tensor %s has the dtype %s; F32, F16 and BF16 are supported.",
                         part.name.c_str(), t->dtype_name.c_str()));
    }
  }
  if (missing.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(missing.size(), kNamed); ++i)
    names += (i > 0 ? ", " : "") + missing[i];
  if (missing.size() > kNamed) names += format(" and %zu more", missing.size() - kNamed);
  throw Error(ErrorCode::kBadModel,
              "The checkpoint lacks tensors that config.json asks for: " + names + ".");
}

int64_t WeightLoader::row_bytes(size_t part) const {
  return parts_[part].cols() *
         dtype_bytes(checkpoint_ == nullptr ? dummy_dtype_ : sources_[part]->dtype);
}

void WeightLoader::load(int64_t max_bytes) {
  const int64_t until = done_bytes_ + std::max<int64_t>(max_bytes, 1);
  while (next_part_ < parts_.size() && done_bytes_ < until) {
    const WeightPart& part = parts_[next_part_];
    const int64_t bytes = row_bytes(next_part_);
    const int64_t wanted =
        (until - done_bytes_) / std::max<int64_t>(bytes, 1) / kRowStep * kRowStep;
    const int64_t count = std::min(part.rows() - next_row_, std::max(wanted, kRowStep));
    if (checkpoint_ != nullptr) {
      part.store(next_row_, stored_rows(next_part_, next_row_, count));
    } else if (!part.fill_dummy || !part.fill_dummy(next_row_, count, dummy_seed(next_part_))) {
      part.store(next_row_, dummy_rows(next_part_, next_row_, count));
    }
    done_bytes_ += count * bytes;
    next_row_ += count;
    if (next_row_ == part.rows()) {
      ++next_part_;
      next_row_ = 0;
    }
  }
  if (next_part_ == parts_.size()) {
    checkpoint_.reset();
    std::vector<std::byte>().swap(scratch_);
  }
}

Tensor WeightLoader::stored_rows(size_t part, int64_t first, int64_t count) {
  const StoredTensor& t = *sources_[part];
  const int64_t bytes = row_bytes(part);
  const std::byte* from = t.data + first * bytes;
  // The format does not promise alignment; kernels read whole elements.
  if (reinterpret_cast<uintptr_t>(from) % static_cast<uintptr_t>(dtype_bytes(t.dtype)) != 0) {
    scratch_.assign(from, from + count * bytes);
    from = scratch_.data();
  }
  // Only read by the stores, for all that a Tensor is not const.
  return Tensor::matrix(const_cast<std::byte*>(from), t.dtype, count, parts_[part].cols());
}

// A tied head gets the numbers of the embedding, because it has the same name.
uint64_t WeightLoader::dummy_seed(size_t part) const {
  uint64_t seed = 1469598103934665603u;
  for (const char c : parts_[part].name) seed = mix64(seed ^ static_cast<uint8_t>(c));
  return seed;
}

Tensor WeightLoader::dummy_rows(size_t part, int64_t first, int64_t count) {
  const int64_t cols = parts_[part].cols();
  scratch_.resize(static_cast<size_t>(count * row_bytes(part)));
  const uint64_t seed = dummy_seed(part);
  for (int64_t i = 0; i < count * cols; ++i) {
    const float value = parts_[part].dummy_ones
                            ? 1.0f
                            : dummy_weight(seed + static_cast<uint64_t>(first * cols + i));
    store_f32(scratch_.data(), dummy_dtype_, i, value);
  }
  return Tensor::matrix(scratch_.data(), dummy_dtype_, count, cols);
}

}  // namespace inferd
