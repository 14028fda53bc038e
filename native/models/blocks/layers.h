// Building blocks of a model: a linear layer, a small float vector on the device, and the list of
// tensors, or slices of tensors, a model wants loaded.
//
// Every matrix product of a model goes through `Linear::apply`, so that splitting over ranks,
// adapters and weight formats concern this file and the backends, never a model.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/checkpoint/checkpoint.h"
#include "core/memory/device_buffer.h"
#include "core/rope_table.h"
#include "models/config/config.h"
#include "models/config/quantization.h"

namespace inferd {

// A checkpoint tensor that a model needs, or rows and columns of one, and what to do with them. The
// loader checks name, shape and dtype first and then hands over the rows in order, in pieces, so
// that loading can be watched and stopped.
struct WeightPart {
  TensorSlice slice;
  WeightFormat kept;        // on the device
  int64_t more_bytes = 0;   // there, besides those of the format
  bool dummy_ones = false;  // load_dummy fills with 1 instead of small random numbers
  // Takes rows [first_row, first_row + rows) of the slice, host memory, packed, dtype f32, f16 or
  // bf16; a vector comes as one row.
  std::function<void(int64_t first_row, const Tensor& rows)> store;
  // Takes rows as codes in place of `store`, where `kept` is a coded format.
  std::function<void(int64_t first_row, int64_t rows, const CodedRows& source)> store_codes{};
  // Takes the whole table of scales of the slice, f32 [blocks down, blocks across], ahead of codes
  // that are kept as they are stored; `store` then takes rows of codes.
  std::function<void(const Tensor& scales)> store_scales{};
  // Makes the rows on the device. Empty, or false: the caller makes them and stores them.
  std::function<bool(int64_t first_row, int64_t rows, const DummyRows& numbers)> fill_dummy{};
};

// What it takes on the device.
inline int64_t bytes_of(const WeightPart& part) {
  return weight_bytes(part.kept, part.slice.rows, part.slice.cols) + part.more_bytes;
}

class Linear;

// Where the tensors of a model go while it is being described: the list of parts, and the backend
// that stores them.
struct WeightList {
  Backend& backend;
  DType dtype;  // of the embedding table on the device
  FormatChoice format_of;
  const std::vector<StackedTensor>& stacked;
  const std::vector<PairedRows>& paired;
  std::vector<WeightPart> parts{};
  std::vector<WeightFormat> linear_formats{};  // that the linears have
  std::vector<Linear*> linears{};              // that adapters may add to
  int64_t parameters_elsewhere = 0;            // of tensors that only other ranks hold
};

// A float32 vector (norm weight, bias) of one or several checkpoint tensors one after another.
class DeviceVector {
 public:
  // `offset` is added to each value.
  void add(WeightList& list, const TensorSlice& values, bool dummy_ones, float offset = 0);
  const float* data() const { return buffer_.as<float>(); }  // null when empty
  void release() { buffer_ = {}; }

 private:
  DeviceBuffer buffer_;
  int64_t count_ = 0;
};

// Output features of a linear that have a name of their own: so many in the checkpoint, and which
// of them are wanted.
struct Section {
  std::string name;
  int64_t rows;
  Share share;
  int64_t filled = 0;  // rows of zeros behind them in the weight

  Section(std::string name, int64_t rows, Share share)
      : name(std::move(name)), rows(rows), share(share) {}
  Section(std::string name, int64_t rows) : Section(std::move(name), rows, {0, rows}) {}
};
// Its input features.
struct Inputs {
  int64_t cols;
  Share share;

  Inputs(int64_t cols, Share share) : cols(cols), share(share) {}
  explicit Inputs(int64_t cols) : Inputs(cols, {0, cols}) {}
};

// What adapters may add to: a weight of the model as a file of adapters names it, and where its
// outputs are in the linear that has them.
struct AdapterTarget {
  std::string name;            // "model.layers.0.self_attn.q_proj"
  int64_t rows, cols;          // of the whole weight
  Share inputs;                // of this rank
  int32_t section;             // of the linear
  int64_t first_row, outputs;  // rows of the weight that the section has
  // How the model has them, where it has those that are rotated together side by side.
  std::optional<PairedRows> paired{};

  // Of the whole weight, as files of adapters have it.
  int64_t stored_row(int64_t output) const {
    const int64_t row = first_row + output;
    return paired ? row_in_pairs(row, paired->head_rows, paired->first) : row;
  }
};

// y = x W^T + b. W may be made of several sections, stacked by rows in the order they are given (q,
// k, v; gate, up).
class Linear {
 public:
  explicit Linear(Epilogue epilogue = Epilogue::kStore, Gate gate = Gate::kSilu)
      : spec_{.format = {}, .epilogue = epilogue, .gate = gate} {}

  // Of each section its share of the tensor <prefix><name>.weight [rows, cols], and of
  // <prefix><name>.bias [rows] when `bias`; or of one tensor of all sections, where list.stacked
  // says so. Sections that are stored in different formats are kept in one
  // that has room for all. Throws Error(kUnsupported) when a share of the inputs cuts a block of
  // quantized weights. Once.
  void add(WeightList& list, const std::string& prefix, const std::vector<Section>& sections,
           const Inputs& inputs, bool bias);
  // Before: it is kept in the type of the list, be the other linears quantized or not.
  void keep_plain() { plain_ = true; }
  // Before: what it gives must be the same bits on all ranks.
  void keep_alike() { spec_.alike = true; }
  // Before: it holds several experts.
  void stack() { spec_.stacked = true; }
  // Before: its rows are those of an embedding.
  void look_up() { spec_.looked_up = true; }
  // One section without a bias, whose tensor has a name of its own: a tied head's is the embedding.
  void add_tensor(WeightList& list, const std::string& name, const TensorSlice& weight);

  // In which its weight is kept, once `add` or `add_tensor` has chosen it.
  const WeightFormat& weight_format() const { return spec_.format; }

  // Computes `args`, whose weight, bias, epilogue and gate are filled in here.
  void apply(Backend& backend, LinearArgs args) const { apply(backend, args, spec_.epilogue); }
  // The same with kStore, for results that are not used as this layer usually uses them.
  void store(Backend& backend, LinearArgs args) const { apply(backend, args, Epilogue::kStore); }
  // inout += scale * (the result summed over the ranks); args.out may hold a part of it.
  void reduce_add(Backend& backend, LinearArgs args, Tensor inout, float scale,
                  NextReader next) const {
    backend.linear_reduce_add(complete(args, Epilogue::kStore), inout, scale, next);
  }
  // Takes in the weight of the norm ahead of it, which then has none, where the backend can.
  void fold(Backend& backend, DeviceVector& norm) {
    if (norm.data() == nullptr || !backend.scale_columns(*weight_, norm.data())) return;
    folded_.resize(static_cast<size_t>(weight_->cols));
    backend.download(folded_.data(), norm.data(), folded_.size() * sizeof(float));
    norm.release();
  }
  // Once everything is loaded: makes room for adapters. What they are given is to be multiplied by
  // norm(), column by column, where that is not empty: a norm ahead was folded into the weight.
  void make_adapter_bank(Backend& backend, int32_t places, int32_t max_rank);
  AdapterBank* bank() const { return bank_.get(); }
  const std::vector<AdapterTarget>& targets() const { return targets_; }
  const std::vector<float>& norm() const { return folded_; }
  // For ops that take weights as they are. Once everything is loaded.
  const PackedWeight* weight() const { return weight_.get(); }
  const float* bias() const { return bias_.data(); }
  // Once everything is loaded.
  void hand_bias(Backend& backend) const {
    if (bias_.data() != nullptr) backend.take_bias(*weight_, bias_.data());
  }

 private:
  void choose_format(WeightList& list, const std::string& name, const TensorSlice& stored);
  // Once it is chosen for all sections.
  void note_format(WeightList& list) const;
  void check_cut(const std::string& name, const Inputs& inputs) const;
  // Rows [first_row, first_row + rows of `tensor`) of the weight.
  void add_part(WeightList& list, const TensorSlice& tensor, int64_t first_row);
  PackedWeight& weight(Backend& backend);
  void apply(Backend& backend, LinearArgs& args, Epilogue epilogue) const {
    backend.linear(complete(args, epilogue));
  }
  const LinearArgs& complete(LinearArgs& args, Epilogue epilogue) const {
    args.weight = weight_.get();
    args.bias = bias_.data();
    args.epilogue = epilogue;
    args.gate = spec_.gate;
    args.bank = args.adapters == nullptr ? nullptr : bank_.get();
    return args;
  }

  PackedWeightPtr weight_;
  DeviceVector bias_;
  WeightSpec spec_;
  AdapterBankPtr bank_;  // null: no room was made
  std::vector<AdapterTarget> targets_;
  std::vector<float> folded_;  // [cols] the norm that the weight has taken in, or empty
  bool plain_ = false;
};

// The embedding table in the weights' dtype.
class EmbeddingTable {
 public:
  void add(WeightList& list, const TensorSlice& table);
  const Tensor& tensor() const { return tensor_; }

 private:
  Tensor rows(Backend& backend, int64_t first, int64_t count);

  DeviceBuffer buffer_;
  Tensor tensor_;
};

}  // namespace inferd
