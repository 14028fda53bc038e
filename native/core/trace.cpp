// See trace.h.
#include "core/trace.h"

#include <algorithm>
#include <new>

namespace inferd {

Trace::Trace(int64_t max_events) : started_ns_(trace_ns()) {
  events_.reserve(static_cast<size_t>(max_events));
}

int32_t Trace::name(std::string_view text) {
  const std::lock_guard lock(mutex_);
  return intern(text);
}

void Trace::add(const TraceEvent& event) {
  const std::lock_guard lock(mutex_);
  put(event);
}

// Called by destructors: an op whose name finds no memory is dropped.
void Trace::add_op(std::string_view text, int64_t start_ns, int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  try {
    put({.start_ns = start_ns,
         .end_ns = end_ns,
         .value = 0,
         .name = intern(text),
         .lane = 0,
         .kind = TraceKind::kOp});
  } catch (const std::bad_alloc&) {
    ++dropped_;
  }
}

void Trace::drop(int64_t count) {
  const std::lock_guard lock(mutex_);
  dropped_ += count;
}

void Trace::sort() {
  const std::lock_guard lock(mutex_);
  std::stable_sort(events_.begin(), events_.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
  });
}

int32_t Trace::intern(std::string_view text) {
  const auto found = index_.find(text);
  if (found != index_.end()) return found->second;
  const auto number = static_cast<int32_t>(names_.size());
  names_.emplace_back(text);
  index_.emplace(names_.back(), number);
  return number;
}

void Trace::put(const TraceEvent& event) {
  if (events_.size() == events_.capacity())
    ++dropped_;
  else
    events_.push_back(event);
}

}  // namespace inferd
