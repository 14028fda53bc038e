// See layers.h. Store functions run at load time, on the engine's thread.
#include "models/blocks/layers.h"

#include <algorithm>

#include "core/error.h"
#include "core/half.h"

namespace inferd {
namespace {

std::optional<PairedRows> find_pairs(const WeightList& list, const std::string& linear) {
  for (const PairedRows& p : list.paired)
    if (p.of_model && linear.ends_with("." + p.linear)) return p;
  return {};
}

}  // namespace

// The store functions below capture `this`: a model holds its blocks at fixed addresses (see
// Model) until loading is over.

void DeviceVector::add(WeightList& list, const TensorSlice& values, bool dummy_ones, float offset) {
  const int64_t first = count_;
  count_ += values.cols;
  list.parts.push_back(
      {.slice = values,
       .kept = kFormatF32,
       .dummy_ones = dummy_ones,
       .store = [this, first, offset, &backend = list.backend](int64_t, const Tensor& given) {
         if (!buffer_)
           buffer_ = DeviceBuffer(backend, count_ * static_cast<int64_t>(sizeof(float)));
         std::vector<float> wide(static_cast<size_t>(given.size()));
         for (size_t i = 0; i < wide.size(); ++i)
           wide[i] = offset + load_f32(given.data, given.dtype, static_cast<int64_t>(i));
         backend.upload(buffer_.as<float>() + first, wide.data(), wide.size() * sizeof(float));
       }});
}

PackedWeight& Linear::weight(Backend& backend) {
  if (weight_ == nullptr) weight_ = backend.make_weight(spec_);
  return *weight_;
}

void Linear::choose_format(WeightList& list, const std::string& name, const TensorSlice& stored) {
  WeightFormat wanted = plain_ ? plain_format(list.dtype) : list.format_of(name, stored);
  // Products of experts take no tables of scales: theirs are widened.
  if (spec_.stacked && is_scaled_rows(wanted)) wanted = plain_format(list.dtype);
  spec_.format =
      spec_.rows == 0 ? wanted : common_format(spec_.format, wanted, plain_format(list.dtype));
}

void Linear::add_part(WeightList& list, const TensorSlice& tensor, int64_t first) {
  list.parts.push_back(
      {.slice = tensor,
       .kept = spec_.format,
       .more_bytes =
           spec_.looked_up ? list.backend.lookup_bytes(spec_.format, tensor.rows, tensor.cols) : 0,
       .store =
           [this, first, &backend = list.backend](int64_t row, const Tensor& source) {
             backend.fill_weight(weight(backend), WeightRole::kCodes, first + row, source);
           },
       .store_codes =
           [this, first, &backend = list.backend](int64_t row, int64_t rows,
                                                  const CodedRows& source) {
             backend.fill_coded(weight(backend), first + row, rows, source);
           },
       .store_scales =
           [this, first, &backend = list.backend](const Tensor& scales) {
             backend.fill_weight(weight(backend), WeightRole::kScales,
                                 first / spec_.format.block_rows, scales);
           },
       .fill_dummy =
           [this, first, &backend = list.backend](int64_t row, int64_t count,
                                                  const DummyRows& numbers) {
             return backend.fill_dummy(weight(backend), first + row, count, numbers);
           }});
}

void Linear::note_format(WeightList& list) const {
  std::vector<WeightFormat>& all = list.linear_formats;
  if (std::find(all.begin(), all.end(), spec_.format) == all.end()) all.push_back(spec_.format);
}

void Linear::add_tensor(WeightList& list, const std::string& name, const TensorSlice& tensor) {
  choose_format(list, name, tensor);
  note_format(list);
  spec_.rows = tensor.rows;
  spec_.cols = tensor.cols;
  add_part(list, tensor, 0);
}

void Linear::add(WeightList& list, const std::string& prefix, const std::vector<Section>& sections,
                 const Inputs& inputs, bool bias) {
  int64_t rows = 0;
  for (const Section& s : sections) rows += s.rows;
  const auto same = [](const Section& s, const std::string& name) { return name == s.name; };
  const auto stack =
      std::find_if(list.stacked.begin(), list.stacked.end(), [&](const StackedTensor& t) {
        return std::equal(sections.begin(), sections.end(), t.sections.begin(), t.sections.end(),
                          same);
      });
  const bool stacked = stack != list.stacked.end();
  spec_.cols = inputs.share.count;
  int64_t before = 0;  // rows of the sections before this one, in the checkpoint
  struct Part {
    std::string stored;
    int64_t first, of;  // in the checkpoint
    TensorSlice slice;
    int64_t at;  // of the weight
  };
  std::vector<Part> parts;
  for (const Section& s : sections) {
    const std::string stored = prefix + (stacked ? stack->name : s.name);
    const int64_t first = (stacked ? before : 0) + s.share.first, of = stacked ? rows : s.rows;
    const TensorSlice slice = TensorSlice::whole(stored + ".weight", {of, inputs.cols})
                                  .some_rows(first, s.share.count)
                                  .some_cols(inputs.share.first, inputs.share.count);
    choose_format(list, prefix + s.name, slice);
    check_cut(prefix + s.name, inputs);
    parts.push_back({stored, first, of, slice, spec_.rows});
    const auto section = static_cast<int32_t>(targets_.size());
    targets_.push_back({stored, of, inputs.cols, inputs.share, section, first, s.share.count,
                        find_pairs(list, stored)});
    spec_.rows += s.share.count + s.filled;
    before += s.rows;
  }
  note_format(list);
  if (!spec_.stacked) list.linears.push_back(this);
  for (const Part& p : parts) {
    add_part(list, p.slice, p.at);
    if (bias) {
      bias_.add(list,
                TensorSlice::whole(p.stored + ".bias", {p.of}).some_cols(p.first, p.slice.rows),
                false);
    }
  }
}

void Linear::make_adapter_bank(Backend& backend, int32_t places, int32_t max_rank) {
  AdapterBankSpec spec{.inputs = spec_.cols, .outputs = {}, .places = places, .max_rank = max_rank};
  for (const AdapterTarget& t : targets_) spec.outputs.push_back(t.outputs);
  bank_ = backend.make_adapter_bank(spec);
}

// Scales belong to whole blocks: cut anywhere else, a rank would quantize other blocks than one
// that has all columns.
void Linear::check_cut(const std::string& name, const Inputs& inputs) const {
  const int32_t block = spec_.format.scaled ? spec_.format.block_cols : 0;
  const auto [first, count] = inputs.share;
  if (block == 0 || count == inputs.cols || (first % block == 0 && count % block == 0)) return;
  throw Error(ErrorCode::kUnsupported,
              format("The weights of %s cannot be %s and split over ranks: each would have %lld of "
                     "its %lld columns, which are not whole blocks of %d.",
                     name.c_str(), format_name(spec_.format).c_str(), static_cast<long long>(count),
                     static_cast<long long>(inputs.cols), block));
}

Tensor EmbeddingTable::rows(Backend& backend, int64_t first, int64_t count) {
  const int64_t row_bytes = tensor_.cols() * dtype_bytes(tensor_.dtype);
  if (!buffer_) {
    buffer_ = DeviceBuffer(backend, tensor_.rows() * row_bytes);
    tensor_.data = buffer_.as<void>();
  }
  return Tensor::matrix(buffer_.as<std::byte>() + first * row_bytes, tensor_.dtype, count,
                        tensor_.cols());
}

void EmbeddingTable::add(WeightList& list, const TensorSlice& table) {
  tensor_ = Tensor::matrix(nullptr, list.dtype, table.rows, table.cols);
  if (table.rows == 0) return;
  list.parts.push_back(
      {.slice = table,
       .kept = plain_format(list.dtype),
       .store =
           [this, &backend = list.backend](int64_t row, const Tensor& source) {
             const Tensor to = this->rows(backend, row, source.rows());
             const void* from = source.data;
             std::vector<std::byte> converted;
             if (source.dtype != to.dtype) {
               converted.resize(static_cast<size_t>(to.size() * dtype_bytes(to.dtype)));
               for (int64_t i = 0; i < source.size(); ++i)
                 store_f32(converted.data(), to.dtype, i, load_f32(source.data, source.dtype, i));
               from = converted.data();
             }
             backend.upload(to.data, from, static_cast<size_t>(to.size() * dtype_bytes(to.dtype)));
           },
       .fill_dummy =
           [this, &backend = list.backend](int64_t row, int64_t count, const DummyRows& numbers) {
             return backend.fill_dummy(this->rows(backend, row, count), numbers);
           }});
}

}  // namespace inferd
