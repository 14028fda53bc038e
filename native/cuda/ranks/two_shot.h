// Sums over three GPUs and more in two shots. Raw device pointers; see two_shot.cu.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/device/launch.h"
#include "cuda/ranks/collectives.h"
#include "cuda/ranks/links.h"

namespace inferd::cuda {

// As all_reduce of collectives.h, with the same bits. cudaErrorInvalidValue for fewer ranks than
// three.
cudaError_t two_shot_all_reduce(const RankLinks& links, const SumArgs& args, int32_t sm_count,
                                const Launch& launch);

}  // namespace inferd::cuda
