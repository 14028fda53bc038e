// See memory.h.
#include "cuda/runtime/memory.h"

#include "core/error.h"

namespace inferd::cuda {

DeviceMemory allocate_device(size_t bytes) {
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error(
        ErrorCode::kOutOfMemory,
        format("The GPU has no %.2f GiB left: %.2f of its %.2f GiB are free.",
               static_cast<double>(bytes) / (1 << 30), static_cast<double>(free) / (1 << 30),
               static_cast<double>(total) / (1 << 30)));
  }
  check(status, "cudaMalloc");
  return DeviceMemory(p);
}

PinnedMemory allocate_pinned(size_t bytes) {
  void* p = nullptr;
  const cudaError_t status = cudaHostAlloc(&p, bytes, cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error(ErrorCode::kOutOfMemory,
                format("The host has no %.1f MiB of memory left to page-lock.",
                       static_cast<double>(bytes) / (1 << 20)));
  }
  check(status, "cudaHostAlloc");
  return PinnedMemory(p);
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return Stream(stream);
}

Event make_event(bool timed) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreate");
  return Event(event);
}

void* Scratch::get(size_t bytes, cudaStream_t stream) {
  if (bytes > bytes_) {
    check(cudaStreamSynchronize(stream), "waiting to enlarge step memory");
    memory_ = allocate_device(bytes);
    bytes_ = bytes;
    check(cudaMemsetAsync(memory_.get(), 0, bytes, stream), "clearing step memory");
  }
  return memory_.get();
}

}  // namespace inferd::cuda
