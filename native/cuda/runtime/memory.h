// Device memory, page-locked host memory, streams and events that a scope owns. Start-up only,
// except that events are recorded in steps.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cuda/runtime/check.h"

namespace inferd::cuda {

// Owns what `Release` frees. Moves, does not copy.
template <typename Handle, cudaError_t (*Release)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != Handle{}) Release(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_{};
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
using DeviceMemory = Owned<void*, cudaFree>;
using PinnedMemory = Owned<void*, cudaFreeHost>;

// Contents undefined. Throw Error(kOutOfMemory).
DeviceMemory allocate_device(size_t bytes);
PinnedMemory allocate_pinned(size_t bytes);
Stream make_stream();
Event make_event(bool timed);

// A piece of device memory that grows while nothing has been reserved for it: engines reserve it
// once, single ops of tests let it grow.
class Scratch {
 public:
  // At least `bytes`; zeroed when it is new. A larger piece replaces the smaller one, which the
  // stream must no longer use.
  void* get(size_t bytes, cudaStream_t stream);
  void* data() const { return memory_.get(); }

 private:
  DeviceMemory memory_;
  size_t bytes_ = 0;
};

}  // namespace inferd::cuda
