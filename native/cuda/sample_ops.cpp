// Sampling and scoring of a step. Inside run_step, on its thread.
#include "cuda/cuda_backend.h"
#include "cuda/sampler/drafts.h"
#include "cuda/sampler/network_drafts.h"
#include "cuda/sampler/sampler.h"

namespace inferd::cuda {
TokenOutputs token_outputs(const SampleOutputs& o) {
  return {.tokens = o.tokens,
          .logprobs = o.logprobs,
          .ranks = o.ranks,
          .top_ids = o.top_ids,
          .top_logprobs = o.top_logprobs,
          .top_counts = o.top_counts};
}

float* CudaBackend::sampler_scratch(int64_t vocab, int64_t rows) {
  size_t bytes = 0;
  check(sampler_scratch_bytes(static_cast<int32_t>(vocab), static_cast<int32_t>(rows), bytes),
        "sampler_scratch_bytes");
  return bytes == 0 ? nullptr : static_cast<float*>(sampler_.get(bytes, stream_.get()));
}

void CudaBackend::sample(const Tensor& logits, const SlotTables& t, const StepBatch& batch,
                         const SampleOutputs& out) {
  check(cuda::sample({.logits = logits.as<const float>(),
                      .row_stride = logits.stride[0],
                      .vocab = static_cast<int32_t>(logits.cols()),
                      .rows = batch.num_samples,
                      .samples = batch.samples,
                      .slots = device_slots(t),
                      .out = token_outputs(out),
                      .scratch = sampler_scratch(logits.cols(), batch.num_samples),
                      .drafted = batch.drafted},
                     batch.plain_greedy ? SampleHint::kPlainGreedy : SampleHint::kAny, launch()),
        "sample");
}

void CudaBackend::accept_drafts(const SlotTables& t, const StepBatch& batch,
                                const SampleOutputs& out) {
  check(cuda::accept_drafts({.samples = batch.samples,
                             .tokens = out.tokens,
                             .count = batch.num_samples,
                             .slots = device_slots(t)},
                            launch()),
        "accept_drafts");
}

void CudaBackend::draft_ngram(const SlotTables& t, const DraftRow* rows, int32_t n,
                              NgramRange range, int32_t* ids) {
  check(cuda::draft_ngram({.rows = rows,
                           .count = n,
                           .min = range.min,
                           .max = range.max,
                           .ids = ids,
                           .slots = device_slots(t)},
                          launch()),
        "draft_ngram");
}

void CudaBackend::draft_best(const Tensor& logits, const SlotTables& t, const DraftRow* rows,
                             int32_t n, int32_t at, const int32_t* target_ids, int32_t* ids) {
  check(cuda::draft_best({.logits = logits.as<const float>(),
                          .row_stride = logits.stride[0],
                          .columns = static_cast<int32_t>(logits.cols()),
                          .rows = rows,
                          .count = n,
                          .at = at,
                          .target_ids = target_ids,
                          .ids = ids,
                          .slots = device_slots(t)},
                         launch()),
        "draft_best");
}

void CudaBackend::score(const Tensor& logits, const int32_t* targets, int32_t top,
                        const SampleOutputs& out) {
  check(cuda::score({.logits = logits.as<const float>(),
                     .row_stride = logits.stride[0],
                     .vocab = static_cast<int32_t>(logits.cols()),
                     .rows = static_cast<int32_t>(logits.rows()),
                     .targets = targets,
                     .top = top,
                     .out = token_outputs(out),
                     .scratch = sampler_scratch(logits.cols(), logits.rows())},
                    launch()),
        "score");
}

}  // namespace inferd::cuda
