// See make_backend.h.
#include "cpu/make_backend.h"

#include <algorithm>

#include "core/error.h"
#include "cpu/cpu_backend.h"
#include "cpu/isa/features.h"
#include "cpu/runtime/comm.h"
#include "cpu/runtime/lone_comm.h"
#include "cpu/weights.h"

namespace inferd {
namespace {

constexpr int kMaxThreads = 1024;

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    throw Error(ErrorCode::kUsage, format("%d CPU threads are not possible; the range is 0 to %d",
                                          options.threads, kMaxThreads));
  }
  const int threads = options.threads > 0 ? options.threads : physical_cores();
  return std::make_unique<cpu::CpuBackend>(cpu::choose_kernels(options.isa),
                                           std::max(1, threads / options.ranks));
}

std::span<const WeightFormat> cpu_weight_formats() { return cpu::kWeightFormats; }

std::unique_ptr<Comm> join_host_group(const RankGroup& group) {
  return group.alone ? cpu::make_lone_comm(group.rank, group.size) : cpu::join_group(group);
}

}  // namespace inferd
