// See stream.h.
#include "cpu/runtime/stream.h"

#include <chrono>
#include <utility>

#include "core/error.h"

namespace inferd::cpu {

Stream::Stream() : thread_([this] { loop(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  queued_.notify_all();
  thread_.join();
}

void Stream::submit(int slot, std::function<void()> step) {
  if (slot < 0 || slot >= static_cast<int>(kSlots))
    throw Error(ErrorCode::kUsage, format("step slot %d is not 0 or 1", slot));
  const auto index = static_cast<size_t>(slot);
  {
    const std::lock_guard lock(mutex_);
    if (completions_[index].state != State::kIdle) {
      throw Error(ErrorCode::kUsage,
                  format("step slot %d is still in use; wait for its step first", slot));
    }
    items_.push_back({index, std::move(step)});
    completions_[index] = {State::kPending, nullptr};
  }
  queued_.notify_one();
}

bool Stream::wait(int slot, int64_t timeout_us) {
  if (slot < 0 || slot >= static_cast<int>(kSlots))
    throw Error(ErrorCode::kUsage, format("step slot %d is not 0 or 1", slot));
  Completion& completion = completions_[static_cast<size_t>(slot)];
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return completion.state != State::kPending; };
  if (!finished_.wait_for(lock, std::chrono::microseconds(timeout_us), ready)) return false;
  completion.state = State::kIdle;
  if (completion.error) std::rethrow_exception(std::exchange(completion.error, nullptr));
  return true;
}

void Stream::call(const std::function<void()>& work) {
  if (std::this_thread::get_id() == thread_.get_id()) return work();
  Completion& completion = completions_[kCallSlot];
  std::unique_lock lock(mutex_);
  // Calls of several threads take turns.
  finished_.wait(lock, [&] { return completion.state == State::kIdle; });
  items_.push_back({kCallSlot, work});
  completion = {State::kPending, nullptr};
  queued_.notify_one();
  finished_.wait(lock, [&] { return completion.state == State::kDone; });
  completion.state = State::kIdle;
  const std::exception_ptr error = std::exchange(completion.error, nullptr);
  lock.unlock();
  finished_.notify_all();
  if (error) std::rethrow_exception(error);
}

void Stream::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    queued_.wait(lock, [&] { return stop_ || !items_.empty(); });
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      item.work();
    } catch (...) {
      error = std::current_exception();
    }
    item.work = nullptr;  // what the step captured dies before its completion is seen
    lock.lock();
    completions_[item.slot] = {State::kDone, error};
    finished_.notify_all();
  }
}

}  // namespace inferd::cpu
