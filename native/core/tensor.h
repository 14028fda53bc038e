// A non-owning view of device or host memory: dtype and up to four dimensions, row-major with
// element strides.
#pragma once
#include <array>
#include <cstdint>

namespace inferd {

enum class DType : int32_t {
  kF32 = 0,
  kF16 = 1,
  kBF16 = 2,
  kI32 = 3,
  kI8 = 4,
  kU8 = 5,
  kI64 = 6,
  kF64 = 7,
  kF8 = 8  // e4m3
};

// Bytes of one element.
constexpr int64_t dtype_bytes(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kF8:
      return 1;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int32_t dims = 0;
  std::array<int64_t, 4> shape{};
  std::array<int64_t, 4> stride{};  // in elements

  static Tensor make(void* data, DType dtype, std::array<int64_t, 4> shape, int32_t dims) {
    Tensor t{data, dtype, dims, shape, {}};
    int64_t step = 1;
    for (int32_t i = dims - 1; i >= 0; --i) {
      t.stride[i] = step;
      step *= shape[i];
    }
    return t;
  }
  static Tensor matrix(void* data, DType dtype, int64_t rows, int64_t cols) {
    return make(data, dtype, {rows, cols, 0, 0}, 2);
  }
  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return shape[1]; }
  int64_t size() const {
    int64_t n = 1;
    for (int32_t i = 0; i < dims; ++i) n *= shape[i];
    return n;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// Rows [first, first + count) of a matrix.
inline Tensor some_rows(const Tensor& t, int64_t first, int64_t count) {
  Tensor part = t;
  if (t.data != nullptr)
    part.data = static_cast<char*>(t.data) + first * t.stride[0] * dtype_bytes(t.dtype);
  part.shape[0] = count;
  return part;
}

// Columns [first, first + count) of a matrix.
inline Tensor columns(const Tensor& t, int64_t first, int64_t count) {
  Tensor part = t;
  part.data = static_cast<char*>(t.data) + first * dtype_bytes(t.dtype);
  part.shape[1] = count;
  return part;
}

}  // namespace inferd
