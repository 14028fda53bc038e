// See slots.h.
#include "engine/slots.h"

#include "core/memory/arena.h"

namespace inferd {
namespace {

void carve(Arena& arena, SlotTables& t) {
  const int64_t slots = t.max_slots;
  t.tokens = arena.take<int32_t>(slots * t.max_len);
  t.lengths = arena.take<int32_t>(slots);
  t.prompt_lens = arena.take<int32_t>(slots);
  t.blocks = arena.take<int32_t>(slots * t.max_blocks);
  t.sampling = arena.take<SamplingRow>(slots);
  for (int32_t i = 0; i < kSlotLists; ++i) {
    const SlotListKind& kind = kSlotListKinds[i];
    t.lists[i] = {.words = arena.take<int32_t>(slots * kind.words * kind.most),
                  .counts = arena.take<int32_t>(slots),
                  .entry_words = kind.words,
                  .most = kind.most};
  }
  t.masks = arena.take<uint32_t>(slots * t.max_sample * t.mask_words);
  t.num_drafts = arena.take<int32_t>(slots);
  t.forced_steps = arena.take<int32_t>(slots);
}

}  // namespace

Slots::Slots(Backend& backend, const PlanLimits& limits) {
  tables_.max_slots = limits.max_slots;
  // One more: what is sampled after max_len tokens is in the history, though never computed.
  tables_.max_len = limits.max_len + 1;
  tables_.max_blocks = limits.max_blocks;
  tables_.max_sample = limits.max_sample;
  tables_.forced_rate = limits.forced_rate;
  tables_.mask_words = (limits.vocab_size + 31) / 32;
  Arena measure(nullptr);
  carve(measure, tables_);
  bytes_ = measure.peak();
  memory_ = DeviceBuffer(backend, bytes_);
  Arena arena(memory_.as<void>());
  carve(arena, tables_);
}

}  // namespace inferd
