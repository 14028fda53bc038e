// See staging.h.
#include "cuda/runtime/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace inferd::cuda {

void Uploader::copy(void* device, size_t bytes, size_t unit, cudaStream_t stream,
                    const std::function<void(void* to, size_t at, size_t count)>& fill) {
  const size_t piece = std::max(unit, kBytes / unit * unit);
  const size_t share = std::max(unit, kShareBytes / unit * unit);
  for (size_t at = 0; at < bytes; at += piece) {
    Half& half = halves_[next_];
    next_ = 1 - next_;
    if (half.bytes == 0)
      half.done = make_event(false);
    else
      check(cudaEventSynchronize(half.done.get()), "uploading");
    if (half.bytes < piece) {
      half.memory = allocate_pinned(std::max(piece, kBytes));
      half.bytes = std::max(piece, kBytes);
    }
    const size_t count = std::min(piece, bytes - at);
    char* const to = static_cast<char*>(half.memory.get());
    threads_.run((count + share - 1) / share, [&](size_t i) {
      fill(to + i * share, at + i * share, std::min(share, count - i * share));
    });
    check(cudaMemcpyAsync(static_cast<char*>(device) + at, half.memory.get(), count,
                          cudaMemcpyHostToDevice, stream),
          "uploading");
    check(cudaEventRecord(half.done.get(), stream), "uploading");
  }
}

void Uploader::copy(void* device, const void* host, size_t bytes, cudaStream_t stream) {
  copy(device, bytes, 1, stream, [host](void* to, size_t at, size_t count) {
    std::memcpy(to, static_cast<const char*>(host) + at, count);
  });
}

void StepStaging::reserve(size_t bytes) {
  if (bytes <= bytes_) return;
  PinnedMemory larger = allocate_pinned(bytes);
  if (used_ > 0) outgrown_.push_back(std::move(memory_));
  memory_ = std::move(larger);
  bytes_ = bytes;
  used_ = 0;
}

void* StepStaging::take_bytes(size_t bytes) {
  constexpr size_t kAlign = 16;
  const size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
  if (used_ + rounded > bytes_) reserve(2 * std::max(rounded, bytes_));
  void* p = static_cast<char*>(memory_.get()) + used_;
  used_ += rounded;
  return p;
}

}  // namespace inferd::cuda
