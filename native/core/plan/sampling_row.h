// The sampling record of one slot, as the scheduler packs it. The list of its fields is also what
// checks of a plan (engine/plan.cpp) and the layout under test (addon/layout.cpp) are made from.
// Mirror of SAMPLING_ROW in actors/messages/sampling.ts.
//
//   seed_lo, seed_hi     key of the counter-based random numbers; sequence_index is a second key
//   temperature          divides the logits; below kGreedyBelow the best token is taken
//   min_tokens           generated tokens before masked ids may be sampled
//   top_logprobs         -1 = no logprobs, else how many top entries beside the token
//   prompt_logprobs      -1 = none, else how many top entries a position
//   grammar              0 = none, else the number in GrammarStore of what every token must keep to
#pragma once
#include <cstdint>

namespace inferd {

constexpr int32_t kMaxTopLogprobs = 20;  // also the row stride of SampleOutputs::top_ids
constexpr float kGreedyBelow = 1e-5f;

// What a field does where the best token is taken.
enum class SamplingRole {
  kDraws,   // nothing: only a draw looks at it
  kEdits,   // changes the logits or asks for log-probabilities, unless it is off
  kBeside,  // nothing: it has no part in choosing a token
};

// FIELD(type, name, least, most, off, role). The samplers rely on the ranges, which hold those of
// actors/messages/sampling.ts. `off` is the value that does nothing.
#define INFERD_SAMPLING_FIELDS(FIELD)                               \
  FIELD(uint32_t, seed_lo, 0, UINT32_MAX, 0, kDraws)                \
  FIELD(uint32_t, seed_hi, 0, UINT32_MAX, 0, kDraws)                \
  FIELD(float, temperature, 0, 100, 1, kDraws)                      \
  FIELD(float, top_p, 0, 1, 1, kDraws)                              \
  FIELD(float, min_p, 0, 1, 0, kDraws)                              \
  FIELD(float, typical_p, 1e-6f, 1, 1, kDraws)                      \
  FIELD(float, repetition_penalty, 1e-4f, 100, 1, kEdits)           \
  FIELD(float, frequency_penalty, -100, 100, 0, kEdits)             \
  FIELD(float, presence_penalty, -100, 100, 0, kEdits)              \
  FIELD(int32_t, top_k, 0, INT32_MAX, 0, kDraws)                    \
  FIELD(int32_t, min_tokens, 0, INT32_MAX, 0, kEdits)               \
  FIELD(int32_t, top_logprobs, -1, kMaxTopLogprobs, -1, kEdits)     \
  FIELD(int32_t, prompt_logprobs, -1, kMaxTopLogprobs, -1, kBeside) \
  FIELD(int32_t, sequence_index, INT32_MIN, INT32_MAX, 0, kDraws)   \
  FIELD(int32_t, grammar, 0, INT32_MAX, 0, kEdits)

#define FIELD(...) +1
constexpr int32_t kSamplingFields = INFERD_SAMPLING_FIELDS(FIELD);
#undef FIELD

struct SamplingRow {
#define FIELD(type, name, ...) type name;
  INFERD_SAMPLING_FIELDS(FIELD)
#undef FIELD
  int32_t reserved[24 - kSamplingFields];
};
static_assert(sizeof(SamplingRow) == 24 * 4);

}  // namespace inferd
