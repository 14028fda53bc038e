// See loader.h.
#include "engine/loader.h"

#include <algorithm>

#include "core/dummy_weight.h"
#include "core/error.h"
#include "core/half.h"

namespace inferd {
namespace {

// Pieces start at multiples of this, where repacked layouts have whole panels.
constexpr int64_t kRowStep = 64;

}  // namespace

const StoredTensor* find_tensor(const Checkpoint& checkpoint, const NameMap& names,
                                const std::string& name) {
  return checkpoint.find(stored_name(names, name));
}

WeightLoader::WeightLoader(const std::vector<WeightPart>& parts,
                           std::unique_ptr<Checkpoint> checkpoint, const NameMap& names)
    : parts_(parts), checkpoint_(std::move(checkpoint)) {
  check(names);
  add_up();
}

WeightLoader::WeightLoader(const std::vector<WeightPart>& parts, DType dtype)
    : parts_(parts), dummy_dtype_(dtype) {
  add_up();
}

void WeightLoader::add_up() {
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!parts_[i].slice.valid())
      throw Error(ErrorCode::kUsage, parts_[i].slice.name + " has no such rows and columns.");
    total_bytes_ += parts_[i].slice.rows * row_bytes(i);
  }
}

void WeightLoader::check(const NameMap& names) {
  constexpr size_t kNamed = 4;
  std::vector<std::string> missing;
  for (const WeightPart& part : parts_) {
    const std::string name = stored_name(names, part.slice.name);
    const StoredTensor* t = checkpoint_->find(name);
    sources_.push_back(t);
    if (t == nullptr) {
      if (missing.empty() || missing.back() != name) missing.push_back(name);
      continue;
    }
    if (t->shape != part.slice.shape) {
      throw Error(
          ErrorCode::kBadModel,
          format("The tensor %s has the shape %s, and config.json asks for %s.", name.c_str(),
                 shape_text(t->shape).c_str(), shape_text(part.slice.shape).c_str()));
    }
    if (!t->floating) {
      throw Error(ErrorCode::kBadModel,
                  format("The tensor %s has the dtype %s; F32, F16 and BF16 are supported.",
                         name.c_str(), t->dtype_name.c_str()));
    }
  }
  if (missing.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(missing.size(), kNamed); ++i)
    list += (i > 0 ? ", " : "") + missing[i];
  if (missing.size() > kNamed) list += format(" and %zu more", missing.size() - kNamed);
  throw Error(ErrorCode::kBadModel,
              "The checkpoint lacks tensors that config.json asks for: " + list + ".");
}

int64_t WeightLoader::row_bytes(size_t part) const {
  return parts_[part].slice.cols *
         dtype_bytes(checkpoint_ == nullptr ? dummy_dtype_ : sources_[part]->dtype);
}

void WeightLoader::load(int64_t max_bytes) {
  const int64_t until = done_bytes_ + std::max<int64_t>(max_bytes, 1);
  while (next_part_ < parts_.size() && done_bytes_ < until) {
    const WeightPart& part = parts_[next_part_];
    const int64_t bytes = row_bytes(next_part_);
    const int64_t wanted =
        (until - done_bytes_) / std::max<int64_t>(bytes, 1) / kRowStep * kRowStep;
    const int64_t count = std::min(part.slice.rows - next_row_, std::max(wanted, kRowStep));
    if (checkpoint_ != nullptr) {
      part.store(next_row_, stored_rows(next_part_, next_row_, count));
    } else if (!part.fill_dummy ||
               !part.fill_dummy(next_row_, count, dummy_numbers(next_part_, next_row_))) {
      part.store(next_row_, dummy_rows(next_part_, next_row_, count));
    }
    done_bytes_ += count * bytes;
    next_row_ += count;
    if (next_row_ == part.slice.rows) {
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
  const TensorSlice& slice = parts_[part].slice;
  const int64_t element = dtype_bytes(t.dtype), bytes = row_bytes(part);
  const int64_t stored_bytes = slice.stored_cols() * element;
  const std::byte* from =
      t.data + (slice.first_row + first) * stored_bytes + slice.first_col * element;
  // The format does not promise alignment; kernels read whole elements.
  const bool aligned = reinterpret_cast<uintptr_t>(from) % static_cast<uintptr_t>(element) == 0;
  if (bytes != stored_bytes || !aligned) {
    scratch_.resize(static_cast<size_t>(count * bytes));
    for (int64_t r = 0; r < count; ++r)
      std::copy_n(from + r * stored_bytes, bytes, scratch_.data() + r * bytes);
    from = scratch_.data();
  }
  // Only read by the stores, for all that a Tensor is not const.
  return Tensor::matrix(const_cast<std::byte*>(from), t.dtype, count, slice.cols);
}

// Counted through the whole tensor, from a number made of its name: a tied head gets the numbers of
// the embedding, and a slice those of the whole.
DummyRows WeightLoader::dummy_numbers(size_t part, int64_t first) const {
  const TensorSlice& slice = parts_[part].slice;
  uint64_t seed = 1469598103934665603u;
  for (const char c : slice.name) seed = mix64(seed ^ static_cast<uint8_t>(c));
  const DummyRows whole{seed, slice.stored_cols()};
  return {whole.counter(slice.first_row + first, slice.first_col), whole.step};
}

Tensor WeightLoader::dummy_rows(size_t part, int64_t first, int64_t count) {
  const int64_t cols = parts_[part].slice.cols;
  scratch_.resize(static_cast<size_t>(count * row_bytes(part)));
  const DummyRows numbers = dummy_numbers(part, first);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const float value = parts_[part].dummy_ones ? 1.0f : dummy_weight(numbers.counter(r, c));
      store_f32(scratch_.data(), dummy_dtype_, r * cols + c, value);
    }
  }
  return Tensor::matrix(scratch_.data(), dummy_dtype_, count, cols);
}

}  // namespace inferd
