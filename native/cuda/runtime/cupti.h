// Kernels, copies and fills of a device as CUPTI's activity records tell them.
//
// CUPTI is one for the process and looked up at run time: a recording without it falls back to the
// events around each step. Once loaded it stays, with nothing enabled, because taking it out of a
// process that holds graphs is known to harm them. Replays of a graph are told kernel by kernel,
// also of one that was recorded before.
//
// Any thread; one recording a device at a time.
#pragma once
#include <cstdint>
#include <string>

#include "core/trace.h"

namespace inferd::cuda {

// Records of `device` go to `trace` until stop_cupti. Returns "", or one sentence why they do not.
std::string start_cupti(int32_t device, Trace& trace);
// When the device has nothing to do: takes what CUPTI still holds and puts it on trace_ns().
void stop_cupti(int32_t device, Trace& trace);

}  // namespace inferd::cuda
