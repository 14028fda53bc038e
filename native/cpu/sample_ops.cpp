// Sampling and scoring of a step: one row of logits a task, results into the output arrays, tokens
// into the slot histories.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/plan/forced_drafts.h"
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

// Writes behind the history what follows the first place where its last tokens stand before, as
// many of `range` as there are; returns how many, `most` at most.
int32_t copy_continuation(int32_t* history, int32_t length, int32_t most, NgramRange range) {
  for (int32_t n = std::min(range.max, length - 1); n >= range.min && most > 0; --n) {
    const int32_t *begin = history, *end = history + length, *suffix = end - n;
    // One before the last place, which is the suffix itself.
    const int32_t* found = std::search(begin, end - 1, suffix, end);
    if (found == end - 1) continue;
    const auto next = static_cast<int32_t>(found - begin) + n;
    const int32_t count = std::min(most, length - next);
    std::copy(history + next, history + next + count, history + length);
    return count;
  }
  return 0;
}

}  // namespace

// Row i of `logits` belongs to sample i. Samples of one step have different slots, or read drafts
// in place of each other's tokens, so the rows are independent.
void CpuBackend::sample(const Tensor& logits, const SlotTables& t, const StepBatch& batch,
                        const SampleOutputs& out) {
  const TraceScope scope(trace_, "sample");
  if (logits.rows() < batch.num_samples)
    throw Error(ErrorCode::kUsage, "sample needs one row of logits for each sample");
  const SlotList &bias = t.lists[kBiasList], &masked = t.lists[kMaskedList];
  pool_.parallel_for(batch.num_samples, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = batch.host_samples[i].slot;
      const int32_t offset = batch.host_samples[i].offset;
      int32_t* history = t.tokens + slot * t.max_len;
      if (offset > 0 && offset > t.num_drafts[slot]) {
        SampleResult none;
        none.token = kNoDraft;
        write_result(out, i, none);
        continue;
      }
      const SampleInput in{.logits = logits.as<const float>() + i * logits.stride[0],
                           .vocab = logits.cols(),
                           .row = t.sampling + slot,
                           .history = history,
                           .length = t.lengths[slot] + offset,
                           .prompt_len = t.prompt_lens[slot],
                           .bias_ids = bias.column(slot, 0),
                           .bias_values = reinterpret_cast<const float*>(bias.column(slot, 1)),
                           .num_bias = bias.counts[slot],
                           .masked_ids = masked.column(slot, 0),
                           .num_masked = masked.counts[slot],
                           .mask = t.sampling[slot].grammar == 0
                                       ? nullptr
                                       : t.masks + (slot * t.max_sample + offset) * t.mask_words};
      const SampleResult result =
          sample_row(kernels_, in, sampler_scratch_[static_cast<size_t>(worker)]);
      write_result(out, i, result);
      int32_t& length = t.lengths[slot];
      // A full history has no next step to read the token.
      if (!batch.drafted && length < t.max_len) history[length++] = result.token;
    }
  });
}

void CpuBackend::accept_drafts(const SlotTables& t, const StepBatch& batch,
                               const SampleOutputs& out) {
  const TraceScope scope(trace_, "accept_drafts");
  for (int32_t i = 0, first = 0; i < batch.num_samples; first = i) {
    const int64_t slot = batch.host_samples[i].slot;
    int32_t* history = t.tokens + slot * t.max_len;
    int32_t& length = t.lengths[slot];
    const int32_t drafts = t.num_drafts[slot];
    const bool forced = t.forced_rate >= 0 && drafts > 0;
    const int32_t kept = forced ? forced_drafts(t.forced_rate, t.forced_steps[slot]++,
                                                static_cast<int32_t>(slot), drafts)
                                : 0;
    bool goes_on = true;
    do {
      if (out.tokens[i] == kNoDraft) continue;
      if (!goes_on || length >= t.max_len) {
        out.tokens[i] = kDraftRefused;
        continue;
      }
      // What is at `length` was computed as a draft behind the tokens before it.
      if (forced && i - first < kept) out.tokens[i] = history[length];
      goes_on = forced ? i - first < kept : i - first < drafts && history[length] == out.tokens[i];
      history[length++] = out.tokens[i];
    } while (++i < batch.num_samples && batch.host_samples[i].offset > 0);
    t.num_drafts[slot] = 0;
  }
}

void CpuBackend::draft_ngram(const SlotTables& t, const DraftRow* rows, int32_t n, NgramRange range,
                             int32_t* ids) {
  const TraceScope scope(trace_, "draft_ngram");
  const int32_t width = t.max_sample - 1;
  pool_.parallel_for(n, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = rows[i].slot;
      int32_t* history = t.tokens + slot * t.max_len;
      const int32_t length = t.lengths[slot];
      const int32_t most = std::min(rows[i].count, t.max_len - length);
      const int32_t count = copy_continuation(history, length, most, range);
      t.num_drafts[slot] = count;
      std::copy(history + length, history + length + count, ids + i * width);
      std::fill(ids + i * width + count, ids + (i + 1) * width, -1);
    }
  });
}

void CpuBackend::draft_best(const Tensor& logits, const SlotTables& t, const DraftRow* rows,
                            int32_t n, int32_t at, const int32_t* target_ids, int32_t* ids) {
  const TraceScope scope(trace_, "draft_best");
  const int32_t width = t.max_sample - 1;
  pool_.parallel_for(n, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = rows[i].slot;
      const int64_t best =
          kernels_.argmax(logits.as<const float>() + i * logits.stride[0], logits.cols());
      const int32_t id = target_ids == nullptr ? static_cast<int32_t>(best) : target_ids[best];
      t.tokens[slot * t.max_len + t.lengths[slot] + at] = id;
      t.num_drafts[slot] = at + 1;
      if (at == 0) std::fill(ids + i * width, ids + (i + 1) * width, -1);
      ids[i * width + at] = id;
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
