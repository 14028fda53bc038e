// The numbers of load_dummy: a pure function of a counter, so that every backend, piece size, slice
// and run makes the same weights. Compiled for host and device.
#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace inferd {

// SplitMix64 (Steele, Lea, Flood 2014) of a counter.
INFERD_HOST_DEVICE inline uint64_t mix64(uint64_t counter) {
  uint64_t z = counter * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// About N(0, 0.02): the sum of four uniform 16-bit numbers (Irwin-Hall), whose deviation is 65536 /
// sqrt(3).
INFERD_HOST_DEVICE inline float dummy_weight(uint64_t counter) {
  const uint64_t r = mix64(counter);
  const int64_t sum =
      static_cast<int64_t>((r & 0xffff) + ((r >> 16) & 0xffff) + ((r >> 32) & 0xffff) + (r >> 48));
  return static_cast<float>(sum - 131070) * (0.02f / 37837.2f);
}

// The counters of some rows: element [r][c] is dummy_weight(first + r * step + c). Counters go
// through the whole tensor of a checkpoint, so that a slice of it has the numbers of the whole.
struct DummyRows {
  uint64_t first;
  int64_t step;

  INFERD_HOST_DEVICE uint64_t counter(int64_t row, int64_t col) const {
    return first + static_cast<uint64_t>(row * step + col);
  }
};

}  // namespace inferd
