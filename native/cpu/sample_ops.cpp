// Sampling and scoring of a step: one row of logits a task, results into the output arrays, tokens
// into the slot histories.
#include <limits>

#include "core/error.h"
#include "cpu/cpu_backend.h"

namespace inferd::cpu {
namespace {

void write_result(const SampleOutputs& out, int64_t i, const SampleResult& r) {
  out.tokens[i] = r.token;
  out.logprobs[i] = r.logprob;
  out.ranks[i] = r.rank;
  out.top_counts[i] = r.num_top;
  for (int32_t j = 0; j < r.num_top; ++j) {
    out.top_ids[i * kMaxTopLogprobs + j] = r.top[j].id;
    out.top_logprobs[i * kMaxTopLogprobs + j] = r.top[j].logprob;
  }
}

}  // namespace

// Row i of `logits` belongs to sample i. Samples of one step have different slots, so the rows are
// independent.
void CpuBackend::sample(const Tensor& logits, const SlotTables& t, const StepBatch& batch,
                        const SampleOutputs& out) {
  const TraceScope scope(trace_, "sample");
  if (logits.rows() < batch.num_samples)
    throw Error(ErrorCode::kUsage, "sample needs one row of logits for each sample");
  const SlotList &bias = t.lists[kBiasList], &masked = t.lists[kMaskedList];
  pool_.parallel_for(batch.num_samples, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = batch.host_samples[i].slot;
      int32_t& length = t.lengths[slot];
      int32_t* history = t.tokens + slot * t.max_len;
      const SampleInput in{
          .logits = logits.as<const float>() + i * logits.stride[0],
          .vocab = logits.cols(),
          .row = t.sampling + slot,
          .history = history,
          .length = length,
          .prompt_len = t.prompt_lens[slot],
          .bias_ids = bias.column(slot, 0),
          .bias_values = reinterpret_cast<const float*>(bias.column(slot, 1)),
          .num_bias = bias.counts[slot],
          .masked_ids = masked.column(slot, 0),
          .num_masked = masked.counts[slot],
          .mask = t.sampling[slot].grammar == 0 ? nullptr : t.masks + slot * t.mask_words};
      const SampleResult result =
          sample_row(kernels_, in, sampler_scratch_[static_cast<size_t>(worker)]);
      write_result(out, i, result);
      // A full history has no next step to read the token.
      if (length < t.max_len) history[length++] = result.token;
    }
  });
}

void CpuBackend::score(const Tensor& logits, const int32_t* targets, int32_t top,
                       const SampleOutputs& out) {
  const TraceScope scope(trace_, "score");
  pool_.parallel_for(logits.rows(), 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = logits.as<const float>() + i * logits.stride[0];
      write_result(out, i,
                   score_row(kernels_, row, logits.cols(), targets[i], top,
                             sampler_scratch_[static_cast<size_t>(worker)]));
    }
  });
}

}  // namespace inferd::cpu
