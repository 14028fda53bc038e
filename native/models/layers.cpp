// See layers.h. Store functions run at load time, on the engine's thread.
#include "models/layers.h"

#include "core/error.h"
#include "core/half.h"

namespace inferd {

// The store functions below capture `this`: a model holds its blocks at fixed addresses (see
// Model) until loading is over.

void DeviceVector::add(WeightList& list, const std::string& name, int64_t count, bool dummy_ones,
                       float offset) {
  const int64_t first = count_;
  count_ += count;
  list.parts.push_back(
      {name,
       {count},
       dummy_ones,
       [this, first, offset, &backend = list.backend](int64_t, const Tensor& values) {
         if (!buffer_)
           buffer_ = DeviceBuffer(backend, count_ * static_cast<int64_t>(sizeof(float)));
         std::vector<float> wide(static_cast<size_t>(values.size()));
         for (size_t i = 0; i < wide.size(); ++i)
           wide[i] = offset + load_f32(values.data, values.dtype, static_cast<int64_t>(i));
         backend.upload(buffer_.as<float>() + first, wide.data(), wide.size() * sizeof(float));
       },
       nullptr});
}

PackedWeight& Linear::weight(Backend& backend, int64_t cols, DType dtype) {
  if (weight_ == nullptr) {
    weight_ = backend.make_weight(rows_, cols, dtype);
    weight_->epilogue = epilogue_;
    weight_->gate = gate_;
  }
  return *weight_;
}

void Linear::add_tensor(WeightList& list, const std::string& tensor, int64_t rows, int64_t cols,
                        DType dtype) {
  const int64_t first = rows_;
  rows_ += rows;
  list.parts.push_back(
      {tensor,
       {rows, cols},
       false,
       [this, first, cols, &backend = list.backend, dtype](int64_t row, const Tensor& source) {
         backend.fill_weight(weight(backend, cols, dtype), first + row, source);
       },
       [this, first, cols, &backend = list.backend, dtype](int64_t row, int64_t count,
                                                           uint64_t seed) {
         const PackedWeight& w = weight(backend, cols, dtype);
         if (w.plain == nullptr) return false;
         std::byte* at =
             static_cast<std::byte*>(w.plain) + (first + row) * cols * dtype_bytes(dtype);
         return backend.fill_dummy(Tensor::matrix(at, dtype, count, cols),
                                   seed + static_cast<uint64_t>(row * cols));
       },
       dtype});
}

void Linear::add(WeightList& list, const std::string& name, int64_t rows, int64_t cols, bool bias) {
  add_tensor(list, name + ".weight", rows, cols, list.linear_dtype);
  if (bias) bias_.add(list, name + ".bias", rows, false);
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

void EmbeddingTable::add(WeightList& list, const std::string& name, int64_t rows, int64_t cols) {
  tensor_ = Tensor::matrix(nullptr, list.dtype, rows, cols);
  list.parts.push_back(
      {name,
       {rows, cols},
       false,
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
       [this, &backend = list.backend](int64_t row, int64_t count, uint64_t seed) {
         const Tensor to = this->rows(backend, row, count);
         return backend.fill_dummy(to, seed + static_cast<uint64_t>(row * to.cols()));
       },
       list.dtype});
}

}  // namespace inferd
