// Collectives between the threads of this process, for float32 in host memory.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>

#include "core/comm.h"

namespace inferd::cpu {

// An id that no group of this process had before.
uint64_t new_group();

// Joins a group, whose first collective waits for all its ranks. Throws Error(kDevice) when it has
// ended already, Error(kUsage) when the rank is taken or sizes differ.
std::unique_ptr<Comm> join_group(const RankGroup& group);

// Ends the group `id`, as Comm::abort; ranks that come later are told. Any thread may call it.
void abort_group(uint64_t id, const std::string& reason, ErrorCode code = ErrorCode::kDevice);

}  // namespace inferd::cpu
