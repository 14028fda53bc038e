// Drafts that are accepted whatever is drawn, for benchmarks: how many of them a sample accepts.
#pragma once
#include <cstdint>

namespace inferd {

// Of the drafts of a sample, the `step`-th of its slot: at least i with a share of rate^i of all
// steps, as when each is right with the chance `rate` behind a right one. The steps of a slot are
// spread evenly (multiples of the golden ratio), so that few of them have the mean of many. The
// same on every rank. Kernels of CUDA call it, too.
constexpr int32_t forced_drafts(float rate, int32_t step, int32_t slot, int32_t most) {
  const uint32_t turn =
      static_cast<uint32_t>(step) * 2654435769u + static_cast<uint32_t>(slot) * 1013904223u;
  const float at = static_cast<float>(turn >> 8) / 16777216.f;
  int32_t count = 0;
  for (float share = rate; count < most && at < share; share *= rate) ++count;
  return count;
}

}  // namespace inferd
