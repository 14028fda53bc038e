// Page-locked memory between pageable host memory and the device.
//
// Uploader: start-up traffic (weights). Copies through two buffers, so that the host fills one
// while the copy engine empties the other; several threads fill a buffer, since one alone takes
// pages of a mapped file at a few GB/s, less than a disk or the bus. Returns when the source may be
// reused, and the stream sees the data before anything enqueued later. StepStaging: what one step
// tells the device besides its plan; taken anew from the start when the step of the same slot
// begins, which is after its previous one was waited for.
//
// Thread: the engine's.
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "cuda/runtime/fill_threads.h"
#include "cuda/runtime/memory.h"

namespace inferd::cuda {

class Uploader {
 public:
  // Enqueues the copy of `bytes` bytes. `fill(to, at, count)` writes bytes [at, at + count) of the
  // source to page-locked memory, from several threads at once; `unit` divides every `at` and
  // `count` but the last.
  void copy(void* device, size_t bytes, size_t unit, cudaStream_t stream,
            const std::function<void(void* to, size_t at, size_t count)>& fill);
  void copy(void* device, const void* host, size_t bytes, cudaStream_t stream);
  // Large copies start them again.
  void end_threads() { threads_.end(); }

 private:
  static constexpr size_t kBytes = 32 << 20;
  // What a thread takes at a time: many of them, so that all threads end together.
  static constexpr size_t kShareBytes = 256 << 10;
  struct Half {
    PinnedMemory memory;
    size_t bytes = 0;
    Event done;
  };
  std::array<Half, 2> halves_;
  size_t next_ = 0;
  FillThreads threads_;
};

class StepStaging {
 public:
  void reserve(size_t bytes);
  void restart() {
    outgrown_.clear();
    used_ = 0;
  }
  // 16-byte aligned, good until restart(). A step that asks for more than was reserved waits for
  // the allocation.
  template <typename T>
  T* take(size_t count) {
    return static_cast<T*>(take_bytes(count * sizeof(T)));
  }

 private:
  void* take_bytes(size_t bytes);

  PinnedMemory memory_;
  std::vector<PinnedMemory> outgrown_;  // what the step took before it needed a larger piece
  size_t bytes_ = 0;
  size_t used_ = 0;
};

}  // namespace inferd::cuda
