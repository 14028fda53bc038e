// Memory of a backend that a scope owns.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/backend.h"

namespace inferd {

// Device memory of a backend, released by the destructor.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Zeroed. Throws Error(kOutOfMemory).
  DeviceBuffer(Backend& backend, int64_t bytes)
      : backend_(&backend), data_(backend.allocate(static_cast<size_t>(bytes))) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) backend_->release(data_);
  }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void swap(DeviceBuffer& other) {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
  }
  Backend* backend_ = nullptr;
  void* data_ = nullptr;
};

// Host memory of a backend that copy_in and copy_out take, released by the destructor.
class HostBuffer {
 public:
  HostBuffer() = default;
  // Zeroed. Throws Error(kOutOfMemory).
  HostBuffer(Backend& backend, int64_t bytes)
      : backend_(&backend),
        data_(backend.allocate_host(static_cast<size_t>(bytes))),
        bytes_(bytes) {}
  HostBuffer(HostBuffer&& other) noexcept { swap(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~HostBuffer() {
    if (data_ != nullptr) backend_->release_host(data_);
  }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void swap(HostBuffer& other) {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Backend* backend_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace inferd
