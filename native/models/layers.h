// Building blocks of a model: a linear layer, a small float vector on the device, and the list of
// tensors a model wants loaded.
//
// Every matrix product of a model goes through `Linear::apply`, so that splitting over ranks,
// adapters and weight formats concern this file and the backends, never a model.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/device_buffer.h"

namespace inferd {

// One tensor that a checkpoint must hold, and what to do with its rows. The loader checks name,
// shape and dtype first and then hands over the rows in order, in pieces, so that loading can be
// watched and stopped.
struct WeightPart {
  std::string name;
  std::vector<int64_t> shape;  // [rows, cols] or [count]
  bool dummy_ones = false;     // load_dummy fills with 1 instead of small random numbers
  // Takes rows [first_row, first_row + rows) of the part, host memory, dtype f32, f16 or bf16; a
  // vector comes as one row.
  std::function<void(int64_t first_row, const Tensor& rows)> store;
  // Makes dummy rows on the device: element i of the part is dummy_weight(seed + i). Empty, or
  // false: the caller makes them and stores them.
  std::function<bool(int64_t first_row, int64_t rows, uint64_t seed)> fill_dummy;
  DType kept = DType::kF32;  // on the device

  int64_t rows() const { return shape.size() == 2 ? shape[0] : 1; }
  int64_t cols() const { return shape.back(); }
};

// Where the tensors of a model go while it is being described: the list of parts, and the backend
// that stores them.
struct WeightList {
  Backend& backend;
  DType dtype;  // of the embedding table on the device, and of linear weights that stay as they are
  std::vector<WeightPart> parts;
  DType linear_dtype;  // of linear weights: `dtype`, or kI8 or kI4 when they are quantized
};

// A float32 vector (norm weight, bias) of one or several checkpoint tensors one after another.
class DeviceVector {
 public:
  // `offset` is added to each value.
  void add(WeightList& list, const std::string& name, int64_t count, bool dummy_ones,
           float offset = 0);
  const float* data() const { return buffer_.as<float>(); }  // null when empty
  void release() { buffer_ = {}; }

 private:
  DeviceBuffer buffer_;
  int64_t count_ = 0;
};

// y = x W^T + b. W may be made of several checkpoint tensors, stacked by rows in the order they
// were added (q, k, v; gate, up).
class Linear {
 public:
  explicit Linear(Epilogue epilogue = Epilogue::kStore, Gate gate = Gate::kSilu)
      : epilogue_(epilogue), gate_(gate) {}

  // A checkpoint tensor <name>.weight [rows, cols], and <name>.bias [rows] when `bias`.
  void add(WeightList& list, const std::string& name, int64_t rows, int64_t cols, bool bias);
  // The output head, kept as `dtype`; a tied one takes the rows of a table that is already in the
  // checkpoint under another name.
  void add_tensor(WeightList& list, const std::string& tensor, int64_t rows, int64_t cols,
                  DType dtype);

  // Computes `args`, whose weight, bias, epilogue and gate are filled in here.
  void apply(Backend& backend, LinearArgs args) const { apply(backend, args, epilogue_); }
  // The same with kStore, for results that are not used as this layer usually uses them.
  void store(Backend& backend, LinearArgs args) const { apply(backend, args, Epilogue::kStore); }
  // Takes in the weight of the norm ahead of it, which then has none, where the backend can.
  void fold(Backend& backend, DeviceVector& norm) {
    if (norm.data() != nullptr && backend.scale_columns(*weight_, norm.data())) norm.release();
  }
  // Once everything is loaded.
  void hand_bias(Backend& backend) const {
    if (bias_.data() != nullptr) backend.take_bias(*weight_, bias_.data());
  }

 private:
  PackedWeight& weight(Backend& backend, int64_t cols, DType dtype);
  void apply(Backend& backend, LinearArgs& args, Epilogue epilogue) const {
    args.weight = weight_.get();
    args.bias = bias_.data();
    args.epilogue = epilogue;
    args.gate = gate_;
    backend.linear(args);
  }

  PackedWeightPtr weight_;
  DeviceVector bias_;
  int64_t rows_ = 0;
  Epilogue epilogue_;
  Gate gate_;
};

// The embedding table in the weights' dtype.
class EmbeddingTable {
 public:
  void add(WeightList& list, const std::string& name, int64_t rows, int64_t cols);
  const Tensor& tensor() const { return tensor_; }

 private:
  Tensor rows(Backend& backend, int64_t first, int64_t count);

  DeviceBuffer buffer_;
  Tensor tensor_;
};

}  // namespace inferd
