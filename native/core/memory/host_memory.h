// Memory of this machine as far as this process may use it: the smaller of the system's and the
// control group's.
#pragma once
#include <cstdint>

namespace inferd {

struct HostMemory {
  int64_t total_bytes;
  int64_t free_bytes;  // can be had without swapping; includes the reclaimable page cache
};

// Reads the system's counters anew; 0 and 0 when it tells nothing.
HostMemory host_memory();

}  // namespace inferd
