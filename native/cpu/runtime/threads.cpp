// See threads.h.
#include "cpu/runtime/threads.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace inferd::cpu {
namespace {

// Longer than any gap between the loops of a step on an idle machine, shorter than a scheduler's
// slice.
constexpr auto kSpin = std::chrono::microseconds(40);
constexpr int kLooksPerClock = 32;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    // More threads than processors: spinning would only keep the others from running.
    : spins_(threads <= static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& e) {
    const int started = size();
    stop();  // a thread that nobody joins would end the process
    throw Error(ErrorCode::kOutOfMemory,
                format("The system gives %d of %d compute threads (%s); ask for fewer, or raise "
                       "its limits.",
                       started, threads, e.code().message().c_str()));
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_.store(true);
  number_.fetch_add(1);
  number_.notify_all();
  for (std::thread& t : workers_) t.join();
}

template <typename Ready>
bool ThreadPool::spin(Ready ready) const {
  if (ready()) return true;
  if (!spins_) return false;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void ThreadPool::run(int64_t n, int64_t grain, Call call, void* body) {
  if (n <= 0) return;
  // Chunk counts fit the claim word whatever the grain.
  grain = std::max<int64_t>({grain, 1, n / 1'000'000});
  const int64_t chunks = (n + grain - 1) / grain;
  if (chunks == 1 || workers_.empty()) return call(body, 0, n, 0);
  loop_ = {call, body, n, grain, static_cast<uint32_t>(chunks)};
  done_.store(0, std::memory_order_relaxed);
  thrown_.store(false, std::memory_order_relaxed);
  const uint32_t number = number_.load(std::memory_order_relaxed) + 1;
  claim_.store(uint64_t{number} << 32 | static_cast<uint64_t>(chunks), std::memory_order_release);
  number_.store(number, std::memory_order_release);
  number_.notify_all();
  drain(0);
  const auto all = static_cast<uint32_t>(chunks);
  if (!spin([&] { return done_.load(std::memory_order_acquire) == all; })) {
    for (uint32_t d; (d = done_.load(std::memory_order_acquire)) != all;)
      done_.wait(d, std::memory_order_acquire);
  }
  if (thrown_.load(std::memory_order_relaxed))
    std::rethrow_exception(std::exchange(error_, nullptr));
}

// A failed loop still counts all its chunks, so that its caller never leaves a thread in the body.
void ThreadPool::run_chunk(const Loop& loop, int64_t begin, int worker) {
  if (thrown_.load(std::memory_order_relaxed)) return;
  try {
    loop.call(loop.body, begin, std::min(loop.n, begin + loop.grain), worker);
  } catch (...) {
    if (!thrown_.exchange(true)) error_ = std::current_exception();
  }
}

void ThreadPool::drain(int worker) {
  uint64_t claim = claim_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(claim) > 0) {
    if (!claim_.compare_exchange_weak(claim, claim - 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
      continue;
    const Loop& loop = loop_;
    const uint32_t chunks = loop.chunks;
    const int64_t begin = (int64_t{chunks} - static_cast<uint32_t>(claim)) * loop.grain;
    run_chunk(loop, begin, worker);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks) done_.notify_one();
    claim = claim_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  for (;;) {
    const auto changed = [&] { return number_.load(std::memory_order_acquire) != seen; };
    if (!spin(changed)) number_.wait(seen, std::memory_order_acquire);
    if (stop_.load()) return;
    seen = number_.load(std::memory_order_acquire);
    drain(worker);
  }
}

}  // namespace inferd::cpu
