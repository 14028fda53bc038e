// Collectives between the threads of this process, for float32 in host memory.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>

#include "core/comm.h"

namespace inferd::cpu {

// Joins the group `id` as `rank` of `size`, and returns when all are there. `id` is new for each
// life of a group: ranks of an earlier one can never meet those of the next. `limit`: as
// Comm::set_limit, for the meeting too. Throws Error(kDevice) when they do not come or the group
// was aborted, Error(kUsage) when a rank is taken or sizes differ.
std::unique_ptr<Comm> join_group(uint64_t id, int32_t rank, int32_t size,
                                 std::chrono::milliseconds limit);

// Ends the group `id`, as Comm::abort; ranks that come later are told. Does nothing when nobody has
// joined it.
void abort_group(uint64_t id, const std::string& reason);

}  // namespace inferd::cpu
