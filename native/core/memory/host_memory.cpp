// See host_memory.h. Linux counters; other systems report physical pages as free.
#include "core/memory/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace inferd {
namespace {

// A file with one number; -1 when it is missing or says "max".
int64_t read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

// One counter of a "name value" file, in bytes; 0 when it is missing.
int64_t read_counter(const char* path, const std::string& wanted, int64_t unit) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find_first_of(" :");
    if (space == std::string::npos || line.compare(0, space, wanted) != 0) continue;
    return std::strtoll(line.c_str() + space + 1, nullptr, 10) * unit;
  }
  return 0;
}

}  // namespace

HostMemory host_memory() {
  HostMemory m{read_counter("/proc/meminfo", "MemTotal", 1024),
               read_counter("/proc/meminfo", "MemAvailable", 1024)};
  if (m.total_bytes == 0) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    m.total_bytes = m.free_bytes = std::max<int64_t>(0, sysconf(_SC_PHYS_PAGES)) * page;
  }
  const int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit > 0 && used >= 0 && limit < m.total_bytes) {
    const int64_t cache = read_counter("/sys/fs/cgroup/memory.stat", "inactive_file", 1);
    m.total_bytes = limit;
    m.free_bytes = std::min(m.free_bytes, std::max<int64_t>(0, limit - used + cache));
  }
  return m;
}

}  // namespace inferd
