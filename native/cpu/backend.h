// The CPU backend: what the engine and the tests make. See core/backend.h for the interface it
// implements.
#pragma once
#include <memory>
#include <string>

#include "core/backend.h"

namespace inferd {

struct CpuOptions {
  int threads = 0;           // compute threads; 0 = physical_cores()
  std::string isa = "auto";  // kernel set, see usable_isas()
};

// @throws Error(kUnsupported) when this build or this CPU has no such kernel set, Error(kUsage) for
// impossible thread counts.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

namespace cpu {
struct Kernels;
// The kernel set that make_cpu_backend would take for `isa`. @throws Error(kUnsupported) as it
// does.
const Kernels& choose_kernels(const std::string& isa);
}  // namespace cpu

}  // namespace inferd
