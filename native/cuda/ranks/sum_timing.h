// Times sums over the GPUs of a group in one shot and in two, for sum_way.h.
//
// One thread puts the work of all ranks on their devices, while nobody else uses these: so no rank
// waits for another on the host, and only one clock counts, that of rank 0's device. At start-up.
#pragma once
#include <span>
#include <vector>

#include "cuda/ranks/links.h"
#include "cuda/ranks/sum_way.h"

namespace inferd::cuda {

struct TimedRank {
  int32_t device, sm_count;
  RankLinks links;  // its `end` and limit do not count here
};

// The ranks of a group, in their order, of which all devices reach each other; another device may
// be current afterwards. Empty where the time for it was over too soon, or memory was short. Every
// rank has counted as many ops afterwards. Throws Error(kDevice) when a device fails.
std::vector<SumTimes> time_sums(std::span<const TimedRank> ranks);

}  // namespace inferd::cuda
