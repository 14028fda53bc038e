// See loader.h.
#include "engine/loading/loader.h"

#include <algorithm>
#include <initializer_list>
#include <thread>

#include "core/dummy_weight.h"
#include "core/error.h"
#include "core/half.h"
#include "engine/loading/dummy_codes.h"
#include "models/config/tensor_names.h"

namespace inferd {
namespace {

// Pieces start at multiples of this, where repacked layouts have whole panels.
constexpr int64_t kRowStep = 64;
// Of the files, in memory beside the weights that are made of them.
constexpr int64_t kReadBytes = 64 << 20;
// What a thread widens at least, and how many there are at most.
constexpr int64_t kWorthThread = 1 << 18;
constexpr int64_t kMostThreads = 16;

// body(first, end) over parts of [0, count), on threads of its own where `worth` of them allow it.
template <typename Body>
void over_threads(int64_t count, int64_t worth, const Body& body) {
  const auto processors = static_cast<int64_t>(std::thread::hardware_concurrency());
  const int64_t threads =
      std::clamp<int64_t>(worth, 1, std::clamp<int64_t>(processors, 1, kMostThreads));
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < threads; ++i)
    others.emplace_back([=, &body] { body(count * i / threads, count * (i + 1) / threads); });
  body(0, count / threads);
}

// Rows of a part of a weight.
class PartCodes final : public CodedRows {
 public:
  PartCodes(const WeightSource& source, const TensorSlice& slice, int64_t first)
      : source_(source), first_row_(slice.first_row + first), slice_(slice) {}
  void blocks(int64_t row, int64_t first, int64_t count, CodedBlock* out) const override {
    source_.blocks(first_row_ + row, slice_.first_col / kCodedBlock + first, count, out);
  }
  void rows_of_blocks(const BlockRange& of, CodedBlock* out) const override {
    const int64_t first = slice_.first_col / kCodedBlock + of.first;
    source_.rows_of_blocks({first_row_ + of.row, of.rows, first, of.count}, out);
  }
  int64_t rows_at_once() const override { return source_.rows_at_once(); }
  std::span<const int32_t> order() const override { return source_.order(); }

 private:
  const WeightSource& source_;
  int64_t first_row_;
  const TensorSlice& slice_;
};

// Whether a weight that is kept in scaled rows is stored so, and not quantized by the backend.
bool keeps_codes(const WeightSource& source, const WeightFormat& kept) {
  return is_scaled_rows(kept) && is_scaled_rows(source.as_stored()) &&
         source.as_stored().codes == kept.codes &&
         (kept.block_cols > 0 || source.as_stored().block_cols == 0);
}

bool of_expert(const TensorSlice& slice) {
  return slice.name.find(".experts.") != std::string::npos;
}

// Columns in an order of their own go with all inputs of a row, and not with experts.
bool takes_order(const TensorSlice& slice, const KeptFormats& kept) {
  return kept.ordered_rows > 0 && slice.rows % kept.ordered_rows == 0 &&
         slice.cols == slice.stored_cols() && !of_expert(slice);
}

}  // namespace

WeightSourcePtr find_weight(const Checkpoint& checkpoint, const ModelConfig& config,
                            const std::string& name, const std::vector<int64_t>& shape) {
  WeightSourcePtr source =
      open_weight(checkpoint, stored_name(config.names, name), shape, config.stored);
  if (source == nullptr)
    return open_stacked_expert(checkpoint, stored_name(config.names, name), shape,
                               config.expert_layout);
  for (const PairedRows& paired : config.paired) {
    if (name.find("." + paired.linear + ".") != std::string::npos)
      return in_halves(std::move(source), paired.head_rows, paired.first);
  }
  return source;
}

namespace {

// Of a part of a weight that is stored as `stored`, or comes to `coded`, the tightest first.
WeightFormat best_kept(const ModelConfig& config, const TensorSlice& slice, const KeptFormats& kept,
                       WeightFormat stored, bool ordered,
                       std::initializer_list<WeightFormat> coded) {
  const auto whole = [](int64_t first, int64_t end, int64_t of, int64_t block) {
    return first % block == 0 && (end % block == 0 || end == of);
  };
  const int64_t end = slice.first_col + slice.cols;
  const auto whole_cols = [&](int64_t block) {
    return whole(slice.first_col, end, slice.stored_cols(), block);
  };
  if (stored == kFloat8Blocks &&
      (slice.first_row % stored.block_rows != 0 || slice.rows % stored.block_rows != 0))
    stored = kFloat8Groups;
  const bool cut = stored.block_cols > 0 && !whole_cols(stored.block_cols);
  if (stored.scaled && !cut && kept.keeps(stored)) return stored;
  if (ordered && !takes_order(slice, kept)) return kept.wide;
  for (WeightFormat one : coded) {
    if (!is_coded(one) || !whole_cols(kCodedBlock)) continue;
    const bool stacked = config.expert_layout.stacked && of_expert(slice);
    if (one == kCodedFloat4 && !kept.float4_linears && !stacked) continue;
    if (whole_cols(one.block_cols) && kept.keeps(one)) return one;
    // A scale of more columns stands for several of fewer.
    one.block_cols = std::min(one.block_cols, static_cast<int32_t>(kCodedBlock));
    if (kept.keeps(one)) return one;
  }
  return kept.wide;
}

// Whether a checkpoint that is only thought of has the weight as it is.
bool is_plain(const ModelConfig& config, const TensorSlice& slice) {
  if (slice.name == std::string(kHeadLinear) + ".weight" || slice.name == kEmbeddingTensor)
    return true;
  const StoredQuantization& q = config.stored;
  if (q.method == StoredQuantization::Method::kMxfp4 && !of_expert(slice)) return true;
  const std::string name = stored_name(config.names, slice.name);
  return std::any_of(q.plain_modules.begin(), q.plain_modules.end(),
                     [&](const std::string& module) { return name.starts_with(module + "."); });
}

// In which backends that do not know floats of 4 bits keep them.
WeightFormat without_float4(const WeightFormat& f) {
  return f == kCodedFloat4 ? kCodedInt8 : f == kCodedFloat4Halves ? kCodedInt8Halves : f;
}

}  // namespace

WeightFormat kept_format_of(const Checkpoint& checkpoint, const ModelConfig& config,
                            const TensorSlice& slice, const KeptFormats& kept) {
  const WeightSourcePtr source = find_weight(checkpoint, config, slice.name, slice.shape);
  if (source == nullptr || !source->quantized()) return kept.plain;
  return best_kept(config, slice, kept, source->as_stored(), !source->order().empty(),
                   {source->compact(), source->coded()});
}

WeightFormat dummy_format_of(const ModelConfig& config, const TensorSlice& slice,
                             const KeptFormats& kept) {
  WeightFormat usual = config.stored.usual;
  if (!usual.scaled || is_plain(config, slice)) return kept.plain;
  if (is_coded(usual) && usual.block_cols == 0) usual.block_cols = coded_run(slice.stored_cols());
  return best_kept(config, slice, kept, is_scaled_rows(usual) ? usual : kFormatF32, false,
                   {usual, without_float4(usual)});
}

const StoredTensor* find_tensor(const Checkpoint& checkpoint, const NameMap& names,
                                const std::string& name) {
  return checkpoint.find(stored_name(names, name));
}

WeightLoader::WeightLoader(const std::vector<WeightPart>& parts,
                           std::unique_ptr<Checkpoint> checkpoint, const ModelConfig& config)
    : parts_(parts), checkpoint_(std::move(checkpoint)) {
  check(config);
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

void WeightLoader::check(const ModelConfig& config) {
  constexpr size_t kNamed = 4;
  std::vector<std::string> missing;
  for (const WeightPart& part : parts_) {
    sources_.push_back(find_weight(*checkpoint_, config, part.slice.name, part.slice.shape));
    if (sources_.back() != nullptr) continue;
    const std::string name = stored_name(config.names, part.slice.name);
    if (missing.empty() || missing.back() != name) missing.push_back(name);
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
  const TensorSlice& slice = parts_[part].slice;
  if (checkpoint_ == nullptr) return slice.cols * dtype_bytes(dummy_dtype_);
  const WeightSource& source = *sources_[part];
  return std::max<int64_t>(1, source.row_bytes() * slice.cols / source.cols);
}

void WeightLoader::load(int64_t max_bytes) {
  const int64_t until = done_bytes_ + std::max<int64_t>(max_bytes, 1);
  while (next_part_ < parts_.size() && done_bytes_ < until) {
    const WeightPart& part = parts_[next_part_];
    const int64_t bytes = row_bytes(next_part_);
    // What is quantized while it is loaded needs all rows of a block.
    const int64_t step = std::max<int64_t>(kRowStep, part.kept.block_rows);
    const int64_t wanted = (until - done_bytes_) / std::max<int64_t>(bytes, 1) / step * step;
    const int64_t count = std::min(part.slice.rows - next_row_, std::max(wanted, step));
    if (checkpoint_ != nullptr && next_row_ == 0 && is_scaled_rows(part.kept))
      store_scales(next_part_);
    if (checkpoint_ != nullptr && is_coded(part.kept)) {
      part.store_codes(next_row_, count, PartCodes(*sources_[next_part_], part.slice, next_row_));
    } else if (checkpoint_ != nullptr) {
      part.store(next_row_, stored_rows(next_part_, next_row_, count));
    } else if (!part.fill_dummy ||
               !part.fill_dummy(next_row_, count, dummy_numbers(next_part_, next_row_))) {
      store_dummy(next_part_, next_row_, count);
    }
    done_bytes_ += count * bytes;
    next_row_ += count;
    if (checkpoint_ != nullptr && done_bytes_ - dropped_bytes_ >= kReadBytes) {
      checkpoint_->drop_pages();
      dropped_bytes_ = done_bytes_;
    }
    if (next_row_ == part.slice.rows) {
      ++next_part_;
      next_row_ = 0;
    }
  }
  if (next_part_ == parts_.size()) {
    sources_.clear();
    checkpoint_.reset();
    std::vector<std::byte>().swap(scratch_);
  }
}

Tensor WeightLoader::stored_rows(size_t part, int64_t first, int64_t count) {
  const WeightSource& source = *sources_[part];
  const StoredTensor* stored =
      keeps_codes(source, parts_[part].kept) ? source.codes() : source.plain();
  return stored == nullptr ? widened_rows(part, first, count)
                           : rows_of(*stored, part, first, count);
}

Tensor WeightLoader::rows_of(const StoredTensor& stored, size_t part, int64_t first,
                             int64_t count) {
  const TensorSlice& slice = parts_[part].slice;
  const int64_t element = dtype_bytes(stored.dtype), bytes = slice.cols * element;
  const int64_t stored_bytes = slice.stored_cols() * element;
  const std::byte* from =
      stored.data + (slice.first_row + first) * stored_bytes + slice.first_col * element;
  // The format does not promise alignment; kernels read whole elements.
  const bool aligned = reinterpret_cast<uintptr_t>(from) % static_cast<uintptr_t>(element) == 0;
  if (bytes != stored_bytes || !aligned) {
    scratch_.resize(static_cast<size_t>(count * bytes));
    for (int64_t r = 0; r < count; ++r)
      std::copy_n(from + r * stored_bytes, bytes, scratch_.data() + r * bytes);
    from = scratch_.data();
  }
  // Only read by the stores, for all that a Tensor is not const.
  return Tensor::matrix(const_cast<std::byte*>(from), stored.dtype, count, slice.cols);
}

void WeightLoader::store_scales(size_t part) {
  const WeightPart& p = parts_[part];
  const WeightSource& source = *sources_[part];
  if (!keeps_codes(source, p.kept)) return;  // the backend quantizes, and makes scales of its own
  const WeightFormat& f = p.kept;
  const TensorSlice& slice = p.slice;
  const int64_t block = f.block_cols == 0 ? slice.cols : f.block_cols;
  const int64_t across = (slice.cols + block - 1) / block;
  const int64_t down = (slice.rows + f.block_rows - 1) / f.block_rows;
  scratch_.resize(static_cast<size_t>(down * across) * sizeof(float));
  auto* to = reinterpret_cast<float*>(scratch_.data());
  for (int64_t r = 0; r < down; ++r) {
    for (int64_t c = 0; c < across; ++c) {
      to[r * across + c] =
          source.scale(slice.first_row + r * f.block_rows, slice.first_col + c * block);
    }
  }
  p.store_scales(Tensor::matrix(to, DType::kF32, down, across));
}

Tensor WeightLoader::widened_rows(size_t part, int64_t first, int64_t count) {
  const TensorSlice& slice = parts_[part].slice;
  scratch_.resize(static_cast<size_t>(count * slice.cols) * sizeof(float));
  auto* to = reinterpret_cast<float*>(scratch_.data());
  const WeightSource& source = *sources_[part];
  over_threads(count, count * slice.cols / kWorthThread, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      source.floats(slice.first_row + first + r, slice.first_col, slice.cols, to + r * slice.cols);
  });
  return Tensor::matrix(to, DType::kF32, count, slice.cols);
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

void WeightLoader::store_dummy(size_t part, int64_t first, int64_t count) {
  const WeightPart& p = parts_[part];
  // Backends quantize to the others by themselves.
  const bool coded = is_coded(p.kept) && p.kept != kCodedFloat4, blocks = p.kept == kFloat8Blocks;
  if (coded)
    return p.store_codes(first, count,
                         DummyCodes(dummy_numbers(part, first), p.kept.codes, p.slice.cols));
  if (!blocks) return p.store(first, dummy_rows(part, first, count));
  DummyFloat8 codes(dummy_numbers(part, first), count, p.slice.cols);
  if (first == 0) p.store_scales(codes.scales(p.kept, p.slice.rows));
  p.store(first, codes.rows());
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
