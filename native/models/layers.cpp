// See layers.h. Store functions run at load time, on the engine's thread.
#include "models/layers.h"

#include "core/error.h"
#include "core/half.h"

namespace inferd {

// The store functions below capture `this`: a model holds its layers at fixed addresses (see
// Decoder) until loading is over.

void DeviceVector::add(WeightList& list, const std::string& name, int64_t count, bool dummy_ones) {
  const int64_t first = count_;
  count_ += count;
  list.parts.push_back(
      {name,
       {count},
       dummy_ones,
       [this, first, &backend = list.backend](int64_t, const Tensor& values) {
         if (!buffer_)
           buffer_ = DeviceBuffer(backend, count_ * static_cast<int64_t>(sizeof(float)));
         std::vector<float> wide(static_cast<size_t>(values.size()));
         for (size_t i = 0; i < wide.size(); ++i)
           wide[i] = load_f32(values.data, values.dtype, static_cast<int64_t>(i));
         backend.upload(buffer_.as<float>() + first, wide.data(), wide.size() * sizeof(float));
       }});
}

void Linear::add_tensor(WeightList& list, const std::string& tensor, int64_t rows, int64_t cols) {
  const int64_t first = rows_;
  rows_ += rows;
  list.parts.push_back({tensor,
                        {rows, cols},
                        false,
                        [this, first, cols, &backend = list.backend, dtype = list.dtype](
                            int64_t row, const Tensor& source) {
                          if (weight_ == nullptr) weight_ = backend.make_weight(rows_, cols, dtype);
                          backend.fill_weight(*weight_, first + row, source);
                        }});
}

void Linear::add(WeightList& list, const std::string& name, int64_t rows, int64_t cols, bool bias) {
  add_tensor(list, name + ".weight", rows, cols);
  if (bias) bias_.add(list, name + ".bias", rows, false);
}

void EmbeddingTable::add(WeightList& list, const std::string& name, int64_t rows, int64_t cols) {
  tensor_ = Tensor::matrix(nullptr, list.dtype, rows, cols);
  list.parts.push_back({name,
                        {rows, cols},
                        false,
                        [this, &backend = list.backend](int64_t row, const Tensor& source) {
                          const int64_t row_bytes = tensor_.cols() * dtype_bytes(tensor_.dtype);
                          if (!buffer_) {
                            buffer_ = DeviceBuffer(backend, tensor_.rows() * row_bytes);
                            tensor_.data = buffer_.as<void>();
                          }
                          const void* from = source.data;
                          std::vector<std::byte> converted;
                          if (source.dtype != tensor_.dtype) {
                            converted.resize(static_cast<size_t>(source.rows() * row_bytes));
                            for (int64_t i = 0; i < source.size(); ++i) {
                              store_f32(converted.data(), tensor_.dtype, i,
                                        load_f32(source.data, source.dtype, i));
                            }
                            from = converted.data();
                          }
                          backend.upload(buffer_.as<std::byte>() + row * row_bytes, from,
                                         static_cast<size_t>(source.rows() * row_bytes));
                        }});
}

}  // namespace inferd
