// When the device ran each step, on trace_ns(), from the CUDA events around it.
//
// Events tell distances in the GPU's time. A chain from step to step keeps them exact, and two
// bounds tie the chain to the host's clock, whose rate differs: no step begins before it was
// submitted, and none ends after it was seen to be done. The least delay of that sight over some
// steps, which is the polling interval, is taken for the error of the chain.
//
// Thread: the backend's.
#pragma once
#include <cstdint>

#include "cuda/runtime/memory.h"

namespace inferd::cuda {

class EventClock {
 public:
  // Waits for the stream.
  explicit EventClock(cudaStream_t stream);

  struct Window {
    int64_t start_ns, end_ns;
  };
  // Of a step that is done; never ahead of the end of the one before. Keeps `begin`'s event as the
  // next link and leaves another in its place.
  Window place(Event& begin, const Event& end, int64_t submitted_ns, int64_t seen_ns);

 private:
  static constexpr int kSteps = 64;

  Event anchor_;
  int64_t anchor_ns_;
  int64_t last_end_ns_ = 0;
  int64_t least_delay_ns_ = INT64_MAX;
  int steps_ = 0;
};

}  // namespace inferd::cuda
