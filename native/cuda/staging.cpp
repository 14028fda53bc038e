// See staging.h.
#include "cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace inferd::cuda {

void Uploader::copy(void* device, size_t bytes, size_t unit, cudaStream_t stream,
                    const std::function<void(void* to, size_t at, size_t count)>& fill) {
  const size_t piece = std::max(unit, kBytes / unit * unit);
  for (size_t at = 0; at < bytes; at += piece) {
    Half& half = halves_[next_];
    next_ = 1 - next_;
    if (half.memory.get() == nullptr) {
      half.memory = allocate_pinned(std::max(piece, kBytes));
      half.done = make_event(false);
    } else {
      check(cudaEventSynchronize(half.done.get()), "uploading");
    }
    const size_t count = std::min(piece, bytes - at);
    fill(half.memory.get(), at, count);
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
  memory_ = allocate_pinned(bytes);
  bytes_ = bytes;
}

void* StepStaging::take_bytes(size_t bytes) {
  constexpr size_t kAlign = 16;
  const size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
  if (used_ + rounded > bytes_) {
    if (used_ > 0) throw Error(ErrorCode::kUsage, "a step needs more staging than was reserved");
    reserve(2 * rounded);
  }
  void* p = static_cast<char*>(memory_.get()) + used_;
  used_ += rounded;
  return p;
}

}  // namespace inferd::cuda
