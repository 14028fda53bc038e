// The device tables of all slots, allocated once: token history, block table, sampling row, and
// the lists of core/plan/slot_lists.h.
//
//   bytes = max_slots * (4 max_len + 4 max_blocks + 4 (words of all lists) + 120)
#pragma once
#include "core/backend.h"
#include "core/device_buffer.h"

namespace inferd {

class Slots {
 public:
  // `max_blocks` = block table entries of a slot. Throws Error(kOutOfMemory).
  Slots(Backend& backend, int32_t max_slots, int32_t max_len, int32_t max_blocks);
  const SlotTables& tables() const { return tables_; }
  int64_t bytes() const { return bytes_; }

 private:
  DeviceBuffer memory_;
  SlotTables tables_{};
  int64_t bytes_ = 0;
};

}  // namespace inferd
