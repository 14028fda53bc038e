// Which rows of a batch use which adapter; see core/adapters.h.
#pragma once
#include <cstdint>
#include <span>

namespace inferd {

// In place of a place, of rows that use no adapter.
constexpr int32_t kNoAdapter = -1;

// Rows [first, first + count) of a batch, which use the same place.
struct AdapterRun {
  int32_t first, count, place;
};

// Which rows of a batch use which place. Made by the host ahead of a step.
struct AdapterRows {
  const int32_t* places = nullptr;   // [rows] device: a place or kNoAdapter
  std::span<const AdapterRun> runs;  // host, ascending; rows of none are in no run
};

}  // namespace inferd
