// Threads that fill page-locked memory together while weights are loaded. They are kept from one
// call to the next: a call takes about a millisecond, and starting sixteen threads half of one.
//
// Thread: run() and end() are the engine's.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace inferd::cuda {

class FillThreads {
 public:
  // body(i) of every i below `count`, on this thread and on others, as many as there are cores, 16
  // at most. `body` does not throw.
  void run(size_t count, const std::function<void(size_t i)>& body);
  // Until the next call of run() that is worth threads.
  void end() { threads_.clear(); }

 private:
  void start(size_t count);
  void work(const std::stop_token& stop);
  void take(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // of all below but threads_
  std::condition_variable_any more_, done_;
  const std::function<void(size_t i)>* body_ = nullptr;
  size_t next_ = 0, count_ = 0;  // which are to be taken
  size_t left_ = 0;              // which are not done
  std::vector<std::jthread> threads_;
};

}  // namespace inferd::cuda
