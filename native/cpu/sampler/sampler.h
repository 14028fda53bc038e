// Sampling of one sequence from its logits, and scoring of given tokens. Called by sample_ops.cpp
// on pool threads.
//
// Order (vLLM V1): raw log-probabilities; min_tokens mask, logit bias; repetition, frequency,
// presence penalty; the grammar's mask; greedy below a temperature of 1e-5; else temperature,
// min_p, top_k, top_p, typical_p, each on the distribution the one before left, and one draw by the
// inverse cumulative distribution in the order of ids. NaN logits count as -inf; when nothing is
// above -inf, id 0 is taken.
#pragma once
#include <cstdint>
#include <vector>

#include "core/plan/sampling_row.h"
#include "cpu/isa/kernels.h"
#include "cpu/sampler/sampling_math.h"

namespace inferd::cpu {

// State of a sequence that sampling reads; pointers into the slot tables.
struct SampleInput {
  const float* logits;  // [vocab]
  int64_t vocab;
  const SamplingRow* row;
  const int32_t* history;  // [length], the first prompt_len of them prompt
  int32_t length, prompt_len;
  const int32_t* bias_ids;
  const float* bias_values;
  int32_t num_bias;
  const int32_t* masked_ids;
  int32_t num_masked;
  const uint32_t* mask;  // of the grammar, see SlotTables::masks; or null
};

struct TopEntry {
  int32_t id;
  float logprob;
};

struct SampleResult {
  int32_t token = 0;
  float logprob = 0;  // raw; NaN when not asked for
  int32_t rank = 0;   // 1 = best; ties by lower id; 0 when not asked for
  int32_t num_top = 0;
  TopEntry top[kMaxTopLogprobs];
};

// Working memory of one thread; grows to the vocabulary.
struct SamplerScratch {
  std::vector<float> logits;
  std::vector<float> exps;
  std::vector<double> sums;       // of blocks of exps
  std::vector<int32_t> seen;      // per id; all zero between calls
  std::vector<int32_t> distinct;  // ids with a non-zero entry in seen
  std::vector<float> tops;        // largest logit of each small block
  std::vector<Candidate> candidates;
  BinScratch bins;
};

SampleResult sample_row(const Kernels& kernels, const SampleInput& in, SamplerScratch& scratch);

// Raw log-probability and rank of `token` and the `top` best entries.
SampleResult score_row(const Kernels& kernels, const float* logits, int64_t vocab, int32_t token,
                       int32_t top, SamplerScratch& scratch);

}  // namespace inferd::cpu
