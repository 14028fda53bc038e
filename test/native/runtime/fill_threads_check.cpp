// Calls the threads that fill buffers, for fill-threads.test.ts: of every count from 0 to 70, and
// of one that takes longer than the rest, twenty times over one set of threads, which is ended now
// and then. Prints how often a body was called of those that were to be, how often one more than
// once, and whether any was still at work, or called, once its call had returned.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <set>
#include <thread>
#include <vector>

#include "cuda/runtime/fill_threads.h"

using inferd::cuda::FillThreads;

int main() {
  FillThreads threads;
  size_t wanted = 0, called = 0, again = 0, late = 0;
  std::mutex mutex;
  std::set<std::thread::id> ids;
  for (int round = 0; round < 20; ++round) {
    for (size_t count = 0; count <= 70; ++count) {
      std::vector<std::atomic<int>> calls(count);
      std::atomic<int> at_work = 0;
      threads.run(count, [&](size_t i) {
        ++at_work;
        if (i == 3) std::this_thread::sleep_for(std::chrono::microseconds(300));
        ++calls.at(i);
        {
          const std::lock_guard lock(mutex);
          ids.insert(std::this_thread::get_id());
        }
        --at_work;
      });
      late += at_work != 0;
      wanted += count;
      for (const auto& each : calls) {
        called += each >= 1;
        again += each > 1;
      }
    }
    if (round % 7 == 6) threads.end();
  }
  std::printf("{\"wanted\":%zu,\"called\":%zu,\"again\":%zu,\"late\":%zu,\"threads\":%zu}\n",
              wanted, called, again, late, ids.size());
}
