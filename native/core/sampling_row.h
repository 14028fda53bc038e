// The sampling record of one slot, as the scheduler packs it. Mirror of SAMPLING_ROW in
// actors/messages/step.ts.
#pragma once
#include <cstdint>

namespace inferd {

struct SamplingRow {
  uint32_t seed_lo;
  uint32_t seed_hi;
  float temperature;         // 0 = greedy
  float top_p;               // 1 = off
  float min_p;               // 0 = off
  float typical_p;           // 1 = off
  float repetition_penalty;  // 1 = off
  float frequency_penalty;   // 0 = off
  float presence_penalty;    // 0 = off
  int32_t top_k;             // 0 = off
  int32_t min_tokens;        // generated tokens before masked ids may be sampled
  int32_t top_logprobs;      // -1 = no logprobs, else 0..20 top entries
  int32_t prompt_logprobs;   // -1 = none, else 0..20 top entries a position
  int32_t sequence_index;    // second key of the counter-based random numbers
  int32_t reserved[10];
};
static_assert(sizeof(SamplingRow) == 24 * 4);

}  // namespace inferd
