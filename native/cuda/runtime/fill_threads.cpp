// See fill_threads.h.
#include "cuda/runtime/fill_threads.h"

#include <algorithm>

namespace inferd::cuda {

void FillThreads::run(size_t count, const std::function<void(size_t i)>& body) {
  if (count > 1) start(count);
  std::unique_lock lock(mutex_);
  body_ = &body;
  next_ = 0;
  count_ = left_ = count;
  more_.notify_all();
  take(lock);
  done_.wait(lock, [&] { return left_ == 0; });
}

void FillThreads::start(size_t count) {
  constexpr size_t kMostThreads = 16;
  const size_t cores = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  while (threads_.size() + 1 < std::min(cores, count))
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

void FillThreads::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (more_.wait(lock, stop, [&] { return next_ < count_; })) take(lock);
}

void FillThreads::take(std::unique_lock<std::mutex>& lock) {
  while (next_ < count_) {
    const size_t i = next_++;
    lock.unlock();
    (*body_)(i);
    lock.lock();
    if (--left_ == 0) done_.notify_one();
  }
}

}  // namespace inferd::cuda
