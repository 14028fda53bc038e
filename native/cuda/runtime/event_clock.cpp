// See event_clock.h.
#include "cuda/runtime/event_clock.h"

#include <algorithm>
#include <utility>

#include "core/trace.h"
#include "cuda/runtime/check.h"

namespace inferd::cuda {
namespace {

int64_t elapsed_ns(const Event& from, const Event& to) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, from.get(), to.get()), "timing a step");
  return static_cast<int64_t>(static_cast<double>(ms) * 1e6);
}

}  // namespace

EventClock::EventClock(cudaStream_t stream) : anchor_(make_event(true)) {
  check(cudaStreamSynchronize(stream), "starting a recording");
  check(cudaEventRecord(anchor_.get(), stream), "starting a recording");
  check(cudaEventSynchronize(anchor_.get()), "starting a recording");
  anchor_ns_ = trace_ns();
}

EventClock::Window EventClock::place(Event& begin, const Event& end, int64_t submitted_ns,
                                     int64_t seen_ns) {
  int64_t start_ns = anchor_ns_ + elapsed_ns(anchor_, begin);
  const int64_t length = elapsed_ns(begin, end);
  start_ns = std::max(std::min(start_ns, seen_ns - length), submitted_ns);
  least_delay_ns_ = std::min(least_delay_ns_, seen_ns - (start_ns + length));
  std::swap(anchor_, begin);
  anchor_ns_ = start_ns;
  if (++steps_ == kSteps) {
    anchor_ns_ += std::max<int64_t>(least_delay_ns_, 0);
    least_delay_ns_ = INT64_MAX;
    steps_ = 0;
  }
  // A bound may have moved the chain back by a fraction of a microsecond.
  const int64_t from = std::max(start_ns, last_end_ns_);
  last_end_ns_ = std::max(start_ns + length, from);
  return {from, last_end_ns_};
}

}  // namespace inferd::cuda
