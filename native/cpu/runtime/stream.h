// The stream of a CPU backend: one thread that runs steps in order, so that submitting is
// asynchronous here as on a GPU.
//
// submit, wait and call come from the thread that owns the engine. At most two steps are under way,
// one in each slot.
#pragma once
#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace inferd::cpu {

class Stream {
 public:
  Stream();
  // Finishes what was submitted.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Queues a step and returns at once. @throws Error(kUsage) when `slot` is not 0 or 1 or its last
  // step was not waited for.
  void submit(int slot, std::function<void()> step);
  // True when the step of `slot` has finished (at once when there is none), false after timeout_us.
  // Rethrows what the step threw.
  bool wait(int slot, int64_t timeout_us);
  // Runs `work` on the stream after all earlier work and waits for it; rethrows. On the stream
  // thread itself it just runs.
  void call(const std::function<void()>& work);

 private:
  static constexpr size_t kSlots = 2;
  static constexpr size_t kCallSlot = 2;
  enum class State { kIdle, kPending, kDone };
  struct Completion {
    State state = State::kIdle;
    std::exception_ptr error;
  };
  struct Item {
    size_t slot;
    std::function<void()> work;
  };
  void loop();

  std::mutex mutex_;
  std::condition_variable queued_, finished_;
  std::deque<Item> items_;  // at most one item a completion
  std::array<Completion, kSlots + 1> completions_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace inferd::cpu
