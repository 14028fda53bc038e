// Step memory planned once: what a step needs is carved out of one block at start-up, and no step
// allocates.
//
// The same carving code runs twice. First with a null base, which only adds up sizes; then with the
// real block, which yields pointers. Buffers that never live at the same time share memory by
// rewinding to a mark:
//
//   take(x) mark=m | take(qkv) take(attention) | rewind(m) | take(gate_up) take(activated) | ...
//   peak() = the larger branch
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace inferd {

class Arena {
 public:
  static constexpr int64_t kAlign = 256;  // what cuBLASLt takes for granted; CPUs need 64

  // `base` null: measure only. Does not own the memory.
  explicit Arena(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <typename T>
  T* take(int64_t count) {
    std::byte* p = base_ == nullptr ? nullptr : base_ + at_;
    at_ += (count * static_cast<int64_t>(sizeof(T)) + kAlign - 1) / kAlign * kAlign;
    peak_ = std::max(peak_, at_);
    return reinterpret_cast<T*>(p);
  }
  // A matrix of f32, f16 or bf16 rows.
  Tensor take_matrix(DType dtype, int64_t rows, int64_t cols) {
    return Tensor::matrix(take<std::byte>(rows * cols * dtype_bytes(dtype)), dtype, rows, cols);
  }

  int64_t mark() const { return at_; }
  void rewind(int64_t mark) { at_ = mark; }
  // Bytes that all carving so far needs.
  int64_t peak() const { return peak_; }

 private:
  std::byte* base_;
  int64_t at_ = 0;
  int64_t peak_ = 0;
};

}  // namespace inferd
