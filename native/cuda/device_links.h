// How GPUs of this machine reach each other's memory, which ranks of one model need.
#pragma once
#include <cstdint>
#include <span>

#include "cuda/library.h"

namespace inferd::cuda {

// links[i][j] of the first `devices` GPUs. Creates no context. Links over NVLink are told apart by
// NVML, where it is found: without it they count as peers.
void find_links(int32_t devices, CudaLink (&links)[CudaProbe::kMaxDevices][CudaProbe::kMaxDevices]);

}  // namespace inferd::cuda
