// What this CPU can do and which kernel sets fit it. Asked once at start-up by the backend, by
// `inferd doctor` and by tests.
#pragma once
#include <string>
#include <vector>

namespace inferd {

struct CpuFeatures {
  std::string cpu;  // model name, or the architecture
  // Instruction sets found, for example {"avx2", "avx512", "avx512_bf16"}.
  std::vector<std::string> names;
};

// Reads cpuid (x86-64) once; safe in any thread.
const CpuFeatures& cpu_features();

// Kernel sets of this build that this CPU can run, best first; "reference" is always the last.
std::vector<std::string> usable_isas();

// The first of usable_isas(): what isa = "auto" takes.
std::string best_isa();

namespace cpu {
struct Kernels;
// The kernel set of this name, or of best_isa() for "auto". @throws Error(kUnsupported) when this
// build or this CPU has none.
const Kernels& choose_kernels(const std::string& isa);
}  // namespace cpu

// Cores this process may run on, without hyper-threads, and not more than a control group's CPU
// quota. At least 1.
int physical_cores();

}  // namespace inferd
