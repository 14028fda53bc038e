// Sampling of next tokens from logits, and scoring of given tokens. Raw device pointers; the
// semantics are those of the CPU sampler (native/cpu/sampler/sampler.h), see sampler.cu.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/plan/step_plan.h"
#include "cuda/device/launch.h"
#include "cuda/sampler/slots.h"

namespace inferd::cuda {

// Device memory, or pinned host memory that the device can address.
struct TokenOutputs {
  int32_t* tokens;      // [rows]
  float* logprobs;      // [rows] raw; NaN when not asked for
  int32_t* ranks;       // [rows] 1 = best; 0 when not asked for
  int32_t* top_ids;     // [rows, kMaxTopLogprobs] best first
  float* top_logprobs;  // [rows, kMaxTopLogprobs]
  int32_t* top_counts;  // [rows]
};

struct SampleParams {
  const float* logits;  // [rows, vocab], row i at logits + i * row_stride
  int64_t row_stride;
  int32_t vocab, rows;
  const TokenSample* samples;  // [rows]; row i samples for samples[i].slot; negative: padding
  DeviceSlots slots;           // the token is appended to the slot's history, unless `drafted`
  TokenOutputs out;
  float* scratch;        // sampler_scratch_bytes(), 16-byte aligned; null when that is 0
  bool drafted = false;  // samples at an offset read drafts as history, or give kNoDraft
};

// What the host knows of the rows. Anything else is read on the device.
enum class SampleHint {
  kAny,
  kPlainGreedy,  // no row draws, edits its logits, or wants log-probabilities
};

struct ScoreParams {
  const float* logits;
  int64_t row_stride;
  int32_t vocab, rows;
  const int32_t* targets;  // [rows] device; outside 0..vocab-1: padding
  int32_t top;             // best entries wanted of each row, 0..kMaxTopLogprobs
  TokenOutputs out;        // tokens[i] = targets[i]
  float* scratch;          // as above
};

// Device memory that sample and score need for up to `rows` rows on the current device: 0 where the
// row fits in the shared memory of a cluster.
cudaError_t sampler_scratch_bytes(int32_t vocab, int32_t rows, size_t& bytes);

// cudaErrorInvalidValue for vocab < 1, rows outside 0..65535 or a missing scratch.
cudaError_t sample(const SampleParams& params, SampleHint hint, const Launch& launch);
cudaError_t score(const ScoreParams& params, const Launch& launch);

}  // namespace inferd::cuda
