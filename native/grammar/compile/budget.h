// What the compiling of a grammar may cost, and the one place that says so when it costs more.
//
// Texts of grammars come from strangers: a short one can describe more than any memory holds. All
// parts of the compiler therefore count their work here.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/error.h"

namespace inferd {

// Bounds of one compile_grammar. `cancelled` may be null; it is read while compiling, and must live
// that long.
struct GrammarLimits {
  int64_t max_text_bytes = 1 << 20;
  // States of the automaton, counted before and after it is made deterministic.
  int64_t max_states = 1 << 18;
  // Of the compiled grammar, Grammar::bytes().
  int64_t max_memory_bytes = 256 << 20;
  // Parentheses and repetitions inside each other.
  int32_t max_depth = 256;
  std::chrono::milliseconds deadline{5000};
  const std::atomic<bool>* cancelled = nullptr;
  // Whether %scope and %distinct may be used.
  bool extensions = false;
};

class Budget {
 public:
  explicit Budget(const GrammarLimits& limits)
      : limits_(limits), end_(std::chrono::steady_clock::now() + limits.deadline) {}

  const GrammarLimits& limits() const { return limits_; }

  // Some unit of work was done, of some nanoseconds; throws once the time is over, or when the work
  // was cancelled.
  void pace() {
    if ((++paces_ & 1023) == 0) check_time();
  }
  // The same for work that grows with the ambiguity of a grammar: throws also when it was too much.
  void tick() {
    pace();
    if (++ticks_ > kMaxTicks) {
      throw Error(ErrorCode::kUnsupported,
                  "The grammar is too ambiguous to compile; nest repetitions and choices less.");
    }
  }
  void check_time() const {
    if (limits_.cancelled != nullptr && limits_.cancelled->load(std::memory_order_relaxed)) {
      throw Error(ErrorCode::kClosed, "The compiling of the grammar was cancelled.");
    }
    if (std::chrono::steady_clock::now() > end_) {
      throw Error(ErrorCode::kUnsupported,
                  format("The grammar takes longer to compile than the limit of %lld ms.",
                         static_cast<long long>(limits_.deadline.count())));
    }
  }
  // `count` more states exist, or fewer when it is negative.
  void states(int64_t count) {
    states_ += count;
    if (states_ > limits_.max_states) {
      throw Error(ErrorCode::kUnsupported,
                  format("The grammar needs more states than the limit of %lld; repeat less, or "
                         "with smaller counts.",
                         static_cast<long long>(limits_.max_states)));
    }
    tick();
  }
  // `count` more bytes are held.
  void memory(int64_t count) {
    memory_ += count;
    if (memory_ > limits_.max_memory_bytes) {
      throw Error(ErrorCode::kUnsupported,
                  format("The grammar needs more memory than the limit of %lld bytes.",
                         static_cast<long long>(limits_.max_memory_bytes)));
    }
  }

 private:
  // Many times what a grammar with the most states needs when its states do not multiply.
  static constexpr uint64_t kMaxTicks = 30'000'000;

  const GrammarLimits limits_;
  const std::chrono::steady_clock::time_point end_;
  int64_t states_ = 0;
  int64_t memory_ = 0;
  uint64_t paces_ = 0;
  uint64_t ticks_ = 0;
};

}  // namespace inferd
