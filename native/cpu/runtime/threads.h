// The compute threads of one CPU backend: parallel loops with dynamic chunks.
//
// parallel_for is called by one thread at a time (the stream thread), which works too; the other
// size() - 1 threads are the pool's. A worker between two loops spins for a few tens of
// microseconds, which covers the gaps inside a step, and then sleeps, so that an idle or crowded
// machine is left alone. Chunks are claimed one by one: a worker that the system has put aside
// holds up a loop only by the chunk it has claimed, and a worker that never woke holds up nothing.
//
// The claim word:  | loop number (32 bits) | chunks not yet claimed (32 bits) |
// A successful claim proves that the loop is alive: the caller leaves only when all claimed chunks
// are done. Loop numbers make a stale compare-and-swap fail.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <type_traits>
#include <vector>

namespace inferd::cpu {

class ThreadPool {
 public:
  // `threads` >= 1 includes the calling thread. @throws Error(kOutOfMemory) when the system does
  // not give as many.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end, worker) over [0, n) in chunks of `grain`, worker in [0, size()). Blocks
  // until all is done. What the body throws on any thread is thrown here, once no thread is in the
  // body any more; chunks that have not begun by then are left out. One chunk, or one thread, runs
  // without any hand-over.
  template <typename Body>
  void parallel_for(int64_t n, int64_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        n, grain,
        [](void* b, int64_t begin, int64_t end, int worker) {
          (*static_cast<Plain*>(b))(begin, end, worker);
        },
        const_cast<std::remove_const_t<Plain>*>(&body));
  }

 private:
  using Call = void (*)(void* body, int64_t begin, int64_t end, int worker);
  struct Loop {  // written by the caller before the claim word, read after a claim
    Call call;
    void* body;
    int64_t n, grain;
    uint32_t chunks;
  };
  void run(int64_t n, int64_t grain, Call call, void* body);
  void work(int worker);
  void stop();
  void drain(int worker);
  void run_chunk(const Loop& loop, int64_t begin, int worker);
  template <typename Ready>
  bool spin(Ready ready) const;

  Loop loop_{};
  std::atomic<bool> thrown_{false};  // by a chunk of the loop
  std::exception_ptr error_;         // the first; written before its chunk is done
  bool spins_;
  alignas(64) std::atomic<uint64_t> claim_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> number_{0};  // of the last loop; what sleeping workers wait on
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace inferd::cpu
