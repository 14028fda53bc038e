// Table rows that measure the limits of the CPU, with the threads and the kernel set of the call,
// or of a device, for benchmarks: attributes -> outputs. One call is one measurement; `repeat`
// makes the timings. The limit of a device's arithmetic is the row `linear` of a large square.
//
// limit_read: megabytes -> work[1] (bytes)
// limit_fma:  steps -> work[1] (floating-point operations)
// limit_dot:  steps -> work[1] (byte multiplications and additions; 0 where the set has no such
//   instruction)
#include <cstring>

#include "addon/op_table/op_rows.h"
#include "core/error.h"
#include "cpu/isa/features.h"
#include "cpu/isa/kernels.h"
#include "cpu/runtime/threads.h"

namespace inferd {
namespace {

// Even shares would wait for a thread that the system has put aside; chunks do not.
constexpr int64_t kChunksPerThread = 16;

int threads_of(const OpTestCall& c) {
  return c.options().threads > 0 ? c.options().threads : physical_cores();
}

const cpu::Kernels& kernels_of(const OpTestCall& c) {
  if (c.options().backend != "cpu")
    throw Error(ErrorCode::kUsage, "limits of arithmetic units are those of the CPU");
  return cpu::choose_kernels(c.options().isa);
}

// Runs `chunk(index)` for all chunks, on the threads of the call, as the step.
template <typename Chunk>
Napi::Object measure(OpTestCall& c, double work, const Chunk& chunk) {
  auto* out = c.new_array<float>(1);
  *out = static_cast<float>(work);
  c.output_floats("work", out, 1);
  cpu::ThreadPool pool(threads_of(c));
  return c.run([&] {
    pool.parallel_for(kChunksPerThread * pool.size(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        [[maybe_unused]] const volatile float sink = chunk(i);
      }
    });
  });
}

Napi::Object run_limit_read(OpTestCall& c) {
  const int64_t bytes = int64_t{c.size("megabytes")} * 1'000'000 / 64 * 64;
  auto* data = c.new_array<std::byte>(bytes);
  // Pages that were never written may all be one page of zeros.
  if (c.backend().info().host_memory) std::memset(data, 1, static_cast<size_t>(bytes));
  auto* out = c.new_array<float>(1);
  const auto work = static_cast<float>(bytes);
  c.backend().upload(out, &work, sizeof work);
  c.output_floats("work", out, 1);
  return c.run([&] {
    if (!c.backend().read_all(data, static_cast<size_t>(bytes)))
      throw Error(ErrorCode::kUnsupported, "this backend has no kernel that only reads");
  });
}

Napi::Object run_limit_fma(OpTestCall& c) {
  const cpu::Kernels& kernels = kernels_of(c);
  const int64_t steps = c.size("steps"), chunks = kChunksPerThread * threads_of(c);
  return measure(c, static_cast<double>(steps * chunks * kernels.fma_step_flops),
                 [&](int64_t) { return kernels.fma_chains(steps); });
}

Napi::Object run_limit_dot(OpTestCall& c) {
  const cpu::Kernels& kernels = kernels_of(c);
  const int64_t steps = c.size("steps"), chunks = kChunksPerThread * threads_of(c);
  const bool has = kernels.dot_chains != nullptr;
  return measure(c, has ? static_cast<double>(steps * chunks * kernels.dot_step_ops) : 0.0,
                 [&](int64_t) { return has ? static_cast<float>(kernels.dot_chains(steps)) : 0; });
}

constexpr OpTest kTests[] = {
    {"limit_read", run_limit_read},
    {"limit_fma", run_limit_fma},
    {"limit_dot", run_limit_dot},
};

}  // namespace

std::span<const OpTest> limit_tests() { return kTests; }

}  // namespace inferd
