// Memory of a CPU backend: zeroed, aligned, in large pages where the system gives them. Used at
// start-up only.
#pragma once
#include <cstddef>
#include <utility>

namespace inferd::cpu {

// Owns one allocation of at least `bytes` zeroed bytes, aligned to 64 (from 2 MiB on to a page,
// with large pages asked for).
class Buffer {
 public:
  Buffer() = default;
  // @throws Error(kOutOfMemory)
  explicit Buffer(size_t bytes);
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void reset();

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace inferd::cpu
