// C++ side of the StepPlan and StepResult columns; mirror of actors/messages/step.ts, compared by
// test/native/layout.test.ts. Wire structs are int32 words, little-endian, no padding. The
// semantics are documented on the TypeScript side.
#pragma once
#include <cstdint>

#include "core/sampling_row.h"

namespace inferd {

constexpr int32_t kLayoutVersion = 2;

struct PlanHeader {
  int32_t layout_version;
  int32_t step;
  int32_t epoch;
  int32_t num_freed;
  int32_t num_new_slots;
  int32_t num_block_sets;
  int32_t num_copies;
  int32_t num_rows;
  int32_t num_samples;
  int32_t num_tokens;
  int32_t words;
  int32_t num_swap_outs;
  int32_t num_swap_ins;
  int32_t reserved[3];
};
static_assert(sizeof(PlanHeader) == 16 * 4);

struct NewSlotFixed {
  int32_t slot;
  int32_t fork_of;
  int32_t num_tokens;
  int32_t prompt_len;
  int32_t num_bias;
  int32_t num_masked;
  SamplingRow sampling;
};
static_assert(sizeof(NewSlotFixed) == 30 * 4);

struct BlockSet {
  int32_t slot, index, block;
};
struct BlockCopy {  // within the device, or between the device and the host
  int32_t src, dst;
};
struct PlanRow {
  int32_t slot, start, count, flags;
};
enum RowFlag : int32_t { kRowRawLogits = 1, kRowPromptLogprobs = 2 };
struct PlanSample {
  int32_t row, slot;
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
  int32_t reserved[5];
};
static_assert(sizeof(ResultHeader) == 16 * 4);

struct ResultSample {
  int32_t slot, token;
  float logprob;
  int32_t rank, top_offset, top_count;
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

}  // namespace inferd
