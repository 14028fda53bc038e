// C++ side of the StepPlan and StepResult columns; mirror of actors/messages/step.ts, compared by
// test/native/layout.test.ts. Wire structs are int32 words, little-endian, no padding. The
// semantics are documented on the TypeScript side.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/plan/sampling_row.h"
#include "core/plan/slot_lists.h"

namespace inferd {

constexpr int32_t kLayoutVersion = 8;

struct NewSlotFixed {
  int32_t slot;
  int32_t fork_of;
  int32_t num_tokens;
  int32_t prompt_len;
  int32_t adapter;                  // the place of its adapter, or kNoAdapter
  int32_t list_counts[kSlotLists];  // entries of each list
  SamplingRow sampling;
};

// From this plan on a place holds this adapter.
struct AdapterPlacement {
  int32_t place, adapter;
};
struct BlockSet {
  int32_t slot, index, block;
};
struct BlockCopy {  // within the device, or between the device and the host
  int32_t src, dst;
};
struct PlanRow {
  int32_t slot, start, count, flags;
};
enum RowFlag : int32_t {
  kRowRawLogits = 1,
  kRowPromptLogprobs = 2,
  kRowFromDevice = 4,
  kRowPoolSum = 8,
  kRowPool = 16
};
struct PlanSample {
  int32_t row, slot, count, drafts;
};
// What backends make of a PlanSample: for each of its tokens, in turn, one of these.
struct TokenSample {
  int32_t slot, offset;  // 0 .. count - 1
};
// The same of its drafts, where there are to be some. `first`: the first token, in the batch, of
// the row that it is sampled behind.
struct DraftRow {
  int32_t slot, count, first;
};

// In place of a sampled token. The first is the last token of its sequence, whose grammar can take
// none; with the others the sample had ended before: at a draft that differed, or for want of one.
constexpr int32_t kNoToken = -1;
constexpr int32_t kDraftRefused = -2;
constexpr int32_t kNoDraft = -3;

// SECTION(type, name, label): the sections of a plan in their order, and what an entry of each is
// made of; `label` is the name in TypeScript. The entries of new_slots go on behind their type,
// see new_slot_words. A new section is a line here and one in step.ts, a PlanChecker::read_NAME
// (engine/plan.cpp), and what a backend does with it.
#define INFERD_PLAN_SECTIONS(SECTION)           \
  SECTION(int32_t, freed, freed)                \
  SECTION(AdapterPlacement, adapters, adapters) \
  SECTION(NewSlotFixed, new_slots, newSlots)    \
  SECTION(BlockSet, block_sets, blockSets)      \
  SECTION(BlockCopy, swap_outs, swapOuts)       \
  SECTION(BlockCopy, copies, copies)            \
  SECTION(BlockCopy, swap_ins, swapIns)         \
  SECTION(PlanRow, rows, rows)                  \
  SECTION(PlanSample, samples, samples)

#define SECTION(...) +1
constexpr int32_t kPlanSections = INFERD_PLAN_SECTIONS(SECTION);
#undef SECTION

struct PlanHeader {
  int32_t layout_version;
  int32_t step;
  int32_t epoch;
  int32_t words;
  int32_t num_tokens;
  int32_t unread;
#define SECTION(type, name, label) int32_t num_##name;
  INFERD_PLAN_SECTIONS(SECTION)
#undef SECTION
  int32_t reserved[10 - kPlanSections];
};
static_assert(sizeof(PlanHeader) == 16 * 4);

// Words of a new slot's entry: the fixed part and the lists behind it.
inline int64_t new_slot_words(const NewSlotFixed& n) {
  int64_t words = static_cast<int64_t>(sizeof n / 4) + n.num_tokens;
  for (int32_t i = 0; i < kSlotLists; ++i)
    words += int64_t{n.list_counts[i]} * kSlotListKinds[i].words;
  return words;
}

// The first word of each section of a plan that was checked.
struct PlanOffsets {
#define SECTION(type, name, label) int64_t name;
  INFERD_PLAN_SECTIONS(SECTION)
#undef SECTION
  int64_t end;

  explicit PlanOffsets(const int32_t* words) {
    PlanHeader header;
    std::memcpy(&header, words, sizeof header);
    end = sizeof header / 4;
#define SECTION(type, name, label) \
  name = end;                      \
  end += section_words<type>(words + end, header.num_##name);
    INFERD_PLAN_SECTIONS(SECTION)
#undef SECTION
  }

 private:
  template <typename Entry>
  static int64_t section_words(const int32_t* words, int32_t count) {
    if constexpr (!std::is_same_v<Entry, NewSlotFixed>) {
      return static_cast<int64_t>(sizeof(Entry) / 4) * count;
    } else {
      int64_t at = 0;
      for (int32_t i = 0; i < count; ++i) {
        NewSlotFixed fixed;
        std::memcpy(&fixed, words + at, sizeof fixed);
        at += new_slot_words(fixed);
      }
      return at;
    }
  }
};

struct ResultHeader {
  int32_t layout_version;
  int32_t step;
  int32_t epoch;
  int32_t error_code;
  int32_t num_samples;
  int32_t num_prompt_logprobs;
  int32_t num_tops;
  int32_t num_logit_rows;
  int32_t queue_us;
  int32_t exec_us;
  int32_t words;
  int32_t num_pooled;
  int32_t reserved[4];
};
static_assert(sizeof(ResultHeader) == 16 * 4);

struct ResultSample {
  int32_t slot, token;
  float logprob;
  int32_t rank, top_offset, top_count;
  int32_t drafted;
};
struct ResultPrompt {
  int32_t slot, position, token;
  float logprob;
  int32_t rank, top_offset, top_count;
};
struct ResultTop {
  int32_t id;
  float logprob;
};
// Followed by `width` floats.
struct ResultPooled {
  int32_t slot, width;
};

}  // namespace inferd
