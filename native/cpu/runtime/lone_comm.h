// A rank without others, whose share of a model is measured: sums are what it brings itself, and
// gathers hold its part in the place of every rank. What such a model answers means nothing.
#pragma once
#include <cstdint>
#include <memory>

#include "core/comm.h"

namespace inferd::cpu {

std::unique_ptr<Comm> make_lone_comm(int32_t rank, int32_t size);

}  // namespace inferd::cpu
