// See features.h. Linux reads /proc and /sys; macOS asks sysctl; elsewhere the standard library's
// thread count is taken.
#include "cpu/isa/features.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <thread>

#include "core/error.h"
#include "cpu/isa/kernels.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace inferd {
namespace {

std::string cpu_name() {
#if defined(__APPLE__)
  char name[256] = {};
  size_t size = sizeof(name);
  if (sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) return name;
#endif
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
#if defined(__aarch64__)
  return "aarch64";
#elif defined(__x86_64__)
  return "x86_64";
#else
  return "unknown";
#endif
}

#if defined(__aarch64__)
#if defined(__APPLE__)
bool arm_has(const char* feature) {
  int yes = 0;
  size_t size = sizeof(yes);
  return sysctlbyname(feature, &yes, &size, nullptr, 0) == 0 && yes != 0;
}
bool arm_has_dotprod() { return arm_has("hw.optional.arm.FEAT_DotProd"); }
bool arm_has_i8mm() { return arm_has("hw.optional.arm.FEAT_I8MM"); }
#elif defined(__linux__)
bool arm_has_dotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool arm_has_i8mm() { return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
#else
bool arm_has_dotprod() { return false; }
bool arm_has_i8mm() { return false; }
#endif
#endif

#if defined(__x86_64__)
// Asked of the processor itself: older compilers do not know the name.
bool x86_has_avx_vnni() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}
#endif

CpuFeatures detect() {
  CpuFeatures f;
  f.cpu = cpu_name();
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    f.names.push_back("avx2");
    if (x86_has_avx_vnni()) f.names.push_back("avx_vnni");
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      f.names.push_back("avx512");
      if (__builtin_cpu_supports("avx512vnni")) f.names.push_back("avx512_vnni");
      if (__builtin_cpu_supports("avx512bf16")) f.names.push_back("avx512_bf16");
    }
  }
#elif defined(__aarch64__)
  f.names.push_back("neon");
  if (arm_has_dotprod()) {
    f.names.push_back("dotprod");
    if (arm_has_i8mm()) f.names.push_back("i8mm");
  }
#endif
  return f;
}

#if defined(__linux__)
// CPU quota of the control group in cores; 0 = none.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::ceil(std::atof(quota.c_str()) / period)));
}

int linux_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 0;
  std::set<std::string> cores;  // by their list of sibling threads
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = "cpu " + std::to_string(cpu);
    cores.insert(siblings);
  }
  const int quota = quota_cores(), count = static_cast<int>(cores.size());
  return quota > 0 ? std::min(quota, count) : count;
}
#endif

// `isa` is one of usable_isas(). The build holds only the tables of its own architecture.
const cpu::Kernels* kernels_named([[maybe_unused]] const std::string& isa) {
#if defined(__x86_64__)
  if (isa == "avx2") return cpu::avx2_kernels();
  if (isa == "avxvnni") return cpu::avxvnni_kernels();
  if (isa == "avx512") return cpu::avx512_kernels();
  if (isa == "avx512vnni") return cpu::avx512vnni_kernels();
#elif defined(__aarch64__)
  if (isa == "neon") return cpu::neon_kernels();
  if (isa == "neondot") return cpu::neondot_kernels();
  if (isa == "neoni8mm") return cpu::neoni8mm_kernels();
#endif
  return cpu::reference_kernels();
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::vector<std::string> usable_isas() {
  const std::vector<std::string>& names = cpu_features().names;
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<std::string> isas;
#if defined(__x86_64__)
  if (has("avx512_vnni") && cpu::avx512vnni_kernels()) isas.push_back("avx512vnni");
  if (has("avx512") && cpu::avx512_kernels()) isas.push_back("avx512");
  if (has("avx_vnni") && cpu::avxvnni_kernels()) isas.push_back("avxvnni");
  if (has("avx2") && cpu::avx2_kernels()) isas.push_back("avx2");
#elif defined(__aarch64__)
  if (has("i8mm") && cpu::neoni8mm_kernels()) isas.push_back("neoni8mm");
  if (has("dotprod") && cpu::neondot_kernels()) isas.push_back("neondot");
  if (has("neon") && cpu::neon_kernels()) isas.push_back("neon");
#else
  (void)has;
#endif
  isas.push_back("reference");
  return isas;
}

std::string best_isa() { return usable_isas().front(); }

const cpu::Kernels& cpu::choose_kernels(const std::string& wanted) {
  const std::vector<std::string> usable = usable_isas();
  const std::string isa = wanted == "auto" || wanted.empty() ? best_isa() : wanted;
  if (std::find(usable.begin(), usable.end(), isa) == usable.end()) {
    std::string list = "auto";
    for (const std::string& name : usable) list += ", " + name;
    throw Error(ErrorCode::kUnsupported,
                format("the kernel set \"%s\" cannot run here; this machine has: %s", isa.c_str(),
                       list.c_str()));
  }
  return *kernels_named(isa);
}

int physical_cores() {
  int cores = 0;
#if defined(__linux__)
  cores = linux_cores();
#elif defined(__APPLE__)
  size_t size = sizeof(cores);
  if (sysctlbyname("hw.physicalcpu", &cores, &size, nullptr, 0) != 0) cores = 0;
#endif
  if (cores <= 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores);
}

}  // namespace inferd
