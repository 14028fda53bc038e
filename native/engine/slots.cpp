// See slots.h.
#include "engine/slots.h"

#include "core/arena.h"

namespace inferd {
namespace {

void carve(Arena& arena, SlotTables& t) {
  const int64_t slots = t.max_slots;
  t.tokens = arena.take<int32_t>(slots * t.max_len);
  t.lengths = arena.take<int32_t>(slots);
  t.prompt_lens = arena.take<int32_t>(slots);
  t.blocks = arena.take<int32_t>(slots * t.max_blocks);
  t.sampling = arena.take<SamplingRow>(slots);
  t.bias_ids = arena.take<int32_t>(slots * t.max_bias);
  t.bias_values = arena.take<float>(slots * t.max_bias);
  t.num_bias = arena.take<int32_t>(slots);
  t.masked_ids = arena.take<int32_t>(slots * t.max_masked);
  t.num_masked = arena.take<int32_t>(slots);
}

}  // namespace

Slots::Slots(Backend& backend, int32_t max_slots, int32_t max_len, int32_t max_blocks) {
  tables_.max_slots = max_slots;
  tables_.max_len = max_len;
  tables_.max_blocks = max_blocks;
  tables_.max_bias = kMaxBias;
  tables_.max_masked = kMaxMasked;
  Arena measure(nullptr);
  carve(measure, tables_);
  bytes_ = measure.peak();
  memory_ = DeviceBuffer(backend, bytes_);
  Arena arena(memory_.as<void>());
  carve(arena, tables_);
}

}  // namespace inferd
