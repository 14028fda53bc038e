// Ops that apply a step plan to the slot tables and to the KV cache. On the stream thread; the plan
// was validated by the engine.
#include <algorithm>
#include <cstring>

#include "cpu/cpu_backend.h"

namespace inferd::cpu {
namespace {

// Copies the entry at `words` into its slot; returns the words behind it.
const int32_t* apply_new_slot(const SlotTables& t, const int32_t* words) {
  NewSlotFixed fixed;
  std::memcpy(&fixed, words, sizeof(fixed));
  words += sizeof(fixed) / sizeof(int32_t);
  const int64_t slot = fixed.slot;
  int32_t* tokens = t.tokens + slot * t.max_len;
  if (fixed.fork_of >= 0) {
    const int32_t* source = t.tokens + int64_t{fixed.fork_of} * t.max_len;
    const int32_t length = t.lengths[fixed.fork_of];
    if (fixed.fork_of != fixed.slot) std::copy(source, source + length, tokens);
    t.lengths[slot] = length;
  } else {
    std::copy(words, words + fixed.num_tokens, tokens);
    t.lengths[slot] = fixed.num_tokens;
  }
  words += fixed.num_tokens;
  t.prompt_lens[slot] = fixed.prompt_len;
  t.num_drafts[slot] = 0;
  t.sampling[slot] = fixed.sampling;
  for (int32_t kind = 0; kind < kSlotLists; ++kind) {
    const SlotList& list = t.lists[kind];
    const int32_t count = list.counts[slot] = fixed.list_counts[kind];
    for (int32_t i = 0; i < count; ++i) {
      for (int32_t w = 0; w < list.entry_words; ++w) list.column(slot, w)[i] = *words++;
    }
  }
  return words;
}

}  // namespace

void CpuBackend::apply_slots(const SlotTables& t, const int32_t* plan_words) {
  const TraceScope scope(trace_, "apply_slots");
  PlanHeader header;
  std::memcpy(&header, plan_words, sizeof(header));
  // A freed slot keeps its contents until it is taken again, so that a new slot of this plan may
  // still fork from it.
  const PlanOffsets at(plan_words);
  const int32_t* entry = plan_words + at.new_slots;
  for (int32_t i = 0; i < header.num_new_slots; ++i) entry = apply_new_slot(t, entry);
  const auto* sets = reinterpret_cast<const BlockSet*>(plan_words + at.block_sets);  // int32 fields
  for (const BlockSet& set : std::span(sets, static_cast<size_t>(header.num_block_sets)))
    t.blocks[int64_t{set.slot} * t.max_blocks + set.index] = set.block;
}

void CpuBackend::copy_blocks(std::span<const BlockArray> arrays, const BlockCopy* pairs,
                             int32_t n) {
  const TraceScope scope(trace_, "copy_blocks");
  for (const BlockArray& array : arrays) {
    auto* blocks = static_cast<char*>(array.base);
    // In order and on one thread: a copy may read what the one before it wrote.
    for (int32_t i = 0; i < n; ++i) {
      std::memmove(blocks + pairs[i].dst * array.block_bytes,
                   blocks + pairs[i].src * array.block_bytes,
                   static_cast<size_t>(array.block_bytes));
    }
  }
}

void CpuBackend::gather_tokens(const SlotTables& t, const StepBatch& batch) {
  const TraceScope scope(trace_, "gather_tokens");
  ++step_;  // positions change, so the rotation table of this step is no longer good
  for (int32_t r = 0; r < batch.num_rows; ++r) {
    const PlanRow& row = batch.host_rows[r];
    const int32_t first = batch.row_offsets[r];
    const bool from_device = (row.flags & kRowFromDevice) != 0;
    const int32_t start = from_device ? t.lengths[row.slot] - 1 : row.start;
    const int32_t* history = t.tokens + int64_t{row.slot} * t.max_len + start;
    for (int32_t i = 0; i < row.count; ++i) {
      batch.ids[first + i] = from_device && i > t.num_drafts[row.slot] ? -1 : history[i];
      batch.positions[first + i] = start + i;
      batch.token_rows[first + i] = r;
    }
  }
}

void CpuBackend::gather_next(const SlotTables& t, const StepBatch& batch, int32_t* ids) {
  const TraceScope scope(trace_, "gather_next");
  for (int32_t i = 0; i < batch.num_tokens; ++i) {
    const int64_t slot = batch.host_rows[batch.token_rows[i]].slot;
    const int32_t next = batch.positions[i] + 1;
    ids[i] = next < t.lengths[slot] ? t.tokens[slot * t.max_len + next] : -1;
  }
}

void CpuBackend::gather_drafts(const SlotTables& t, const StepBatch& batch, int32_t ahead,
                               int32_t lag) {
  const TraceScope scope(trace_, "gather_drafts");
  ++step_;  // as in gather_tokens
  for (int32_t r = 0; r < batch.num_rows; ++r) {
    const int64_t slot = batch.host_rows[r].slot;
    const int32_t at = t.lengths[slot] - 1 + ahead;
    batch.ids[r] = t.tokens[slot * t.max_len + at];
    batch.positions[r] = at - lag;
    batch.token_rows[r] = r;
  }
}

void CpuBackend::pick_drafting(const SlotTables& t, const DraftRow* rows, int32_t n,
                               const int32_t* positions, int32_t* picks) {
  const TraceScope scope(trace_, "pick_drafting");
  for (int32_t i = 0; i < n; ++i)
    picks[i] = rows[i].first + t.lengths[rows[i].slot] - 2 - positions[rows[i].first];
}

}  // namespace inferd::cpu
