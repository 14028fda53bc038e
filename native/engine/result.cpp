// See result.h.
#include "engine/result.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/error.h"

namespace inferd {
namespace {

int64_t micros(std::chrono::steady_clock::duration d) {
  return std::chrono::duration_cast<std::chrono::microseconds>(d).count();
}
int32_t clamped(int64_t us) { return static_cast<int32_t>(std::clamp<int64_t>(us, 0, INT32_MAX)); }

// Appends wire structs to a byte buffer of known size.
class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <typename T>
  void put(const T& value) {
    copy(&value, sizeof value);
  }
  void copy(const void* from, size_t bytes) {
    std::memcpy(out_.data() + at_, from, bytes);
    at_ += bytes;
  }

 private:
  std::span<std::byte> out_;
  size_t at_ = 0;
};

int32_t top_count(const SampleOutputs& o, size_t i, int32_t most) {
  return std::clamp(o.top_counts[i], 0, most);
}

// The step brings the top entries home only when one of its samples wants some.
int32_t most_sampled(const ParsedPlan& plan) { return std::max(plan.max_top, 0); }

}  // namespace

void ResultWriter::prepare(const StagedStep& step, StepFault fault, int64_t vocab_size,
                           int64_t exec_us) {
  step_ = &step;
  if (exec_us < 0) {
    exec_us_ = micros(step.finished - step.started);
    queue_us_ = micros(step.started - step.submitted);
  } else {
    // The step function only enqueued: what is not execution was waiting.
    exec_us_ = exec_us;
    queue_us_ = micros(std::chrono::steady_clock::now() - step.submitted) - exec_us;
  }
  fault_ = fault;
  vocab_size_ = vocab_size;
  tops_ = pooled_ = 0;
  words_ = static_cast<int64_t>(sizeof(ResultHeader) / 4);
  if (fault != StepFault::kNone) return;
  const ParsedPlan& plan = step.plan;
  tokens_.clear();
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const auto first = static_cast<size_t>(plan.sample_offsets[i]);
    for (size_t at = first; at < first + static_cast<size_t>(step.tokens_given(i)); ++at) {
      tokens_.push_back({plan.samples[i].slot, at, at == first ? step.drafts_computed(i) : 0});
      tops_ += top_count(step.sampled, at, most_sampled(plan));
    }
  }
  for (size_t i = 0; i < plan.prompts.size(); ++i)
    tops_ += top_count(step.scored, i, plan.prompts[i].top);
  pooled_ = std::count_if(plan.pools.begin(), plan.pools.end(),
                          [](const PoolSpan& p) { return p.over > 0; });
  words_ += static_cast<int64_t>(tokens_.size() * sizeof(ResultSample) / 4 +
                                 plan.prompts.size() * sizeof(ResultPrompt) / 4) +
            tops_ * static_cast<int64_t>(sizeof(ResultTop) / 4) +
            pooled_ * (static_cast<int64_t>(sizeof(ResultPooled) / 4) + step.pooled_width) +
            static_cast<int64_t>(plan.logit_rows.size()) * (2 + vocab_size_);
}

void ResultWriter::write(std::span<std::byte> out) const {
  const ParsedPlan& plan = step_->plan;
  const bool good = fault_ == StepFault::kNone;
  Writer w(out);
  w.put(ResultHeader{.layout_version = kLayoutVersion,
                     .step = plan.header.step,
                     .epoch = plan.header.epoch,
                     .error_code = static_cast<int32_t>(fault_),
                     .num_samples = good ? static_cast<int32_t>(tokens_.size()) : 0,
                     .num_prompt_logprobs = good ? static_cast<int32_t>(plan.prompts.size()) : 0,
                     .num_tops = static_cast<int32_t>(tops_),
                     .num_logit_rows = good ? static_cast<int32_t>(plan.logit_rows.size()) : 0,
                     .queue_us = clamped(queue_us_),
                     .exec_us = good ? clamped(exec_us_) : 0,
                     .words = static_cast<int32_t>(words_),
                     .num_pooled = static_cast<int32_t>(pooled_),
                     .reserved = {}});
  if (!good) return;

  const SampleOutputs& sampled = step_->sampled;
  const SampleOutputs& scored = step_->scored;
  int32_t top_offset = 0;
  for (const auto& [slot, at, drafted] : tokens_) {
    const int32_t count = top_count(sampled, at, most_sampled(plan));
    w.put(ResultSample{slot, sampled.tokens[at], sampled.logprobs[at], sampled.ranks[at],
                       top_offset, count, drafted});
    top_offset += count;
  }
  for (size_t i = 0; i < plan.prompts.size(); ++i) {
    const PromptTarget& t = plan.prompts[i];
    const int32_t count = top_count(scored, i, t.top);
    w.put(ResultPrompt{t.slot, t.position, t.token, scored.logprobs[i], scored.ranks[i], top_offset,
                       count});
    top_offset += count;
  }
  const auto put_tops = [&w](const SampleOutputs& o, size_t row, int32_t count) {
    for (size_t i = row * kMaxTopLogprobs; i < row * kMaxTopLogprobs + static_cast<size_t>(count);
         ++i) {
      w.put(ResultTop{o.top_ids[i], o.top_logprobs[i]});
    }
  };
  for (const Token& token : tokens_)
    put_tops(sampled, token.at, top_count(sampled, token.at, most_sampled(plan)));
  for (size_t i = 0; i < plan.prompts.size(); ++i)
    put_tops(scored, i, top_count(scored, i, plan.prompts[i].top));
  const float* sum = step_->pooled;
  for (const PoolSpan& p : plan.pools) {
    if (p.over == 0) continue;
    w.put(ResultPooled{p.slot, static_cast<int32_t>(step_->pooled_width)});
    for (const float* end = sum + step_->pooled_width; sum < end; ++sum)
      w.put(*sum / static_cast<float>(p.over));
  }
  for (size_t i = 0; i < plan.logit_rows.size(); ++i) {
    w.put(plan.logit_rows[i].slot);
    w.put(plan.logit_rows[i].position);
    w.copy(step_->logits.as<float>() + i * static_cast<size_t>(vocab_size_),
           static_cast<size_t>(vocab_size_) * sizeof(float));
  }
}

}  // namespace inferd
