// Makes the CPU backend; core/backend.h is all that its user sees of it.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "core/backend.h"
#include "core/weight_format.h"

namespace inferd {

struct CpuOptions {
  int threads = 0;           // compute threads of all ranks together; 0 = physical_cores()
  int ranks = 1;             // that share them; each has one at least
  std::string isa = "auto";  // kernel set, see usable_isas()
};

// @throws Error(kUnsupported) when this build or this CPU has no such kernel set, Error(kUsage) for
// impossible thread counts.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

// Formats of weights that it multiplies.
std::span<const WeightFormat> cpu_weight_formats();

// What a rank of whatever backend does with the others in host memory: join_group of
// cpu/runtime/comm.h.
std::unique_ptr<Comm> join_host_group(const RankGroup& group);

}  // namespace inferd
