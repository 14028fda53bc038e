// The device tables of all slots, allocated once: token history, block table, sampling row, the
// lists of core/plan/slot_lists.h, and masks of the vocabulary, one for each token of a sample.
//
//   bytes = max_slots * (4 (max_len + 1) + 4 max_blocks + 4 (words of all lists) + max_sample vocab
//   / 8 + 124)
#pragma once
#include "core/backend.h"
#include "core/memory/device_buffer.h"
#include "engine/plan.h"

namespace inferd {

class Slots {
 public:
  // Throws Error(kOutOfMemory).
  Slots(Backend& backend, const PlanLimits& limits);
  const SlotTables& tables() const { return tables_; }
  int64_t bytes() const { return bytes_; }

 private:
  DeviceBuffer memory_;
  SlotTables tables_{};
  int64_t bytes_ = 0;
};

}  // namespace inferd
