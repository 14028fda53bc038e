// Table rows that test the threads of the CPU backend, with as many of them as the call says:
// attributes -> outputs.
//
// loop_fails: count bad times -> caught[1] done[1]
//   `times` loops of `count` chunks, of which chunk `bad` finds no memory, each followed by a good
//   one: how many threw std::bad_alloc, and how many chunks the good ones ran.
#include "cpu/runtime/threads.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "addon/op_table/op_rows.h"

namespace inferd {
namespace {

Napi::Object run_loop_fails(OpTestCall& c) {
  const int32_t count = c.size("count"), bad = c.size("bad"), times = c.size("times");
  auto* caught = c.new_array<int32_t>(1);
  auto* done = c.new_array<int32_t>(1);
  c.output_ints("caught", caught, 1);
  c.output_ints("done", done, 1);
  cpu::ThreadPool pool(std::max(c.options().threads, 1));
  return c.run([&] {
    std::atomic<int32_t> ran{0};
    for (int32_t i = 0; i < times; ++i) {
      try {
        pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
          if (begin <= bad && bad < end) throw std::bad_alloc();
        });
      } catch (const std::bad_alloc&) {
        ++*caught;
      }
      pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
        ran += static_cast<int32_t>(end - begin);
      });
    }
    *done = ran.load();
  });
}

constexpr OpTest kTests[] = {{"loop_fails", run_loop_fails}};

}  // namespace

std::span<const OpTest> thread_tests() { return kTests; }

}  // namespace inferd
