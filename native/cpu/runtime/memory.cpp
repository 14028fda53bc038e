// See memory.h.
#include "cpu/runtime/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace inferd::cpu {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kLarge = size_t{2} << 20;

bool mapped(size_t bytes) { return bytes >= kLarge; }

[[noreturn]] void fail(size_t bytes) {
  throw Error(ErrorCode::kOutOfMemory, format("could not allocate %zu bytes of memory", bytes));
}

}  // namespace

Buffer::Buffer(size_t bytes) {
  // A size that would wrap around when rounded up can never be had.
  if (bytes > SIZE_MAX - kLarge) fail(bytes);
  const size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign + (bytes == 0 ? kAlign : 0);
  if (mapped(rounded)) {
    void* p = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail(bytes);
#if defined(MADV_HUGEPAGE)
    // A hint: streaming weights through 4 KiB pages costs address translation misses.
    (void)madvise(p, rounded, MADV_HUGEPAGE);
#endif
    data_ = p;
  } else {
    data_ = std::aligned_alloc(kAlign, rounded);
    if (!data_) fail(bytes);
    std::memset(data_, 0, rounded);
  }
  bytes_ = rounded;
}

void Buffer::reset() {
  if (!data_) return;
  if (mapped(bytes_)) {
    munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace inferd::cpu
