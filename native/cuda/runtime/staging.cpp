// See staging.h.
#include "cuda/runtime/staging.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace inferd::cuda {
namespace {

// Less is not worth starting a thread for.
constexpr size_t kThreadBytes = 2 << 20;
constexpr size_t kMaxThreads = 8;

using Fill = std::function<void(void* to, size_t at, size_t count)>;

// fill(to, at, count), shared out over threads in multiples of `unit`. `fill` does not throw.
void fill_together(const Fill& fill, char* to, size_t at, size_t count, size_t unit) {
  const size_t cores = std::max<size_t>(1, std::thread::hardware_concurrency() / 2);
  const size_t threads = std::clamp<size_t>(count / kThreadBytes, 1, std::min(cores, kMaxThreads));
  const size_t share = (count / threads + unit - 1) / unit * unit;
  std::vector<std::jthread> others;
  for (size_t begin = share; begin < count; begin += share) {
    others.emplace_back(
        [&, begin] { fill(to + begin, at + begin, std::min(share, count - begin)); });
  }
  fill(to, at, std::min(share, count));
}

}  // namespace

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
    fill_together(fill, static_cast<char*>(half.memory.get()), at, count, unit);
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
