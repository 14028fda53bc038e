// A recording of what a device does: its steps, and the ops, kernels and copies inside them.
//
// The engine adds steps, its backend the rest, each from its own thread; hence the lock, which is
// taken while a recording runs and never otherwise. All memory is reserved at the start: events
// beyond it are counted and dropped. Names are those of code; nothing of a prompt gets here.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace inferd {

// The one clock of a recording: steady_clock, which Node's process.hrtime reads too.
inline int64_t trace_ns(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}
inline int64_t trace_ns() { return trace_ns(std::chrono::steady_clock::now()); }

enum class TraceKind : uint8_t { kStep, kOp, kKernel, kCopy };  // numbers of native/index.ts

struct TraceEvent {
  int64_t start_ns, end_ns;
  int64_t value;  // kStep: number of the step; kCopy: bytes; else 0
  int32_t name;   // from Trace::name
  int32_t lane;   // stream of the device; 0 for steps and ops
  TraceKind kind;
};

class Trace {
 public:
  explicit Trace(int64_t max_events);

  // How the backend sees the device: "ops", "cupti" or "events". `note` says why not better.
  std::string source, note;

  int64_t started_ns() const { return started_ns_; }
  int32_t name(std::string_view text);
  void add(const TraceEvent& event);
  void add_op(std::string_view text, int64_t start_ns, int64_t end_ns);
  void drop(int64_t count);
  // Calls edit(event) for all events.
  template <typename Edit>
  void edit(Edit&& edit) {
    const std::lock_guard lock(mutex_);
    for (TraceEvent& event : events_) edit(event);
  }

  // When nothing is added any more: in order of start, outer events before inner ones.
  void sort();
  const std::vector<TraceEvent>& events() const { return events_; }
  const std::vector<std::string>& names() const { return names_; }
  int64_t dropped() const { return dropped_; }

 private:
  int32_t intern(std::string_view text);
  void put(const TraceEvent& event);

  std::mutex mutex_;
  const int64_t started_ns_;
  std::vector<TraceEvent> events_;  // never beyond what was reserved
  std::vector<std::string> names_;
  std::map<std::string, int32_t, std::less<>> index_;
  int64_t dropped_ = 0;
};

// Adds an op from here to the end of the scope; does nothing without a trace.
class TraceScope {
 public:
  TraceScope(Trace* trace, std::string_view name) : trace_(trace), name_(name) {
    if (trace_ != nullptr) start_ns_ = trace_ns();
  }
  ~TraceScope() {
    if (trace_ != nullptr) trace_->add_op(name_, start_ns_, trace_ns());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* const trace_;
  const std::string_view name_;
  int64_t start_ns_ = 0;
};

}  // namespace inferd
