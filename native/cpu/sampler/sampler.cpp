// See sampler.h.
#include "cpu/sampler/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "cpu/sampler/rng.h"

namespace inferd::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
// In `seen`: the low bits count places in the output, this bit says "anywhere".
constexpr int32_t kSeenBit = 1 << 30;

void grow(SamplerScratch& s, int64_t vocab) {
  const auto n = static_cast<size_t>(vocab);
  if (s.seen.size() >= n) return;  // the last to grow: memory may run out on the way
  s.logits.resize(n);
  s.exps.resize(n);
  s.sums.resize((n + kExpBlock - 1) / kExpBlock);
  s.seen.resize(n, 0);
}

// Log of the sum of exp over clean logits whose largest is `max`.
double log_sum(const Kernels& kernels, SamplerScratch& s, int64_t vocab, float max) {
  if (max == kMinusInf) return 0;  // every log-probability is -inf
  return static_cast<double>(max) +
         std::log(kernels.exp_sum(s.exps.data(), s.sums.data(), s.logits.data(), vocab, max, 1.0f));
}

// The `top` best of clean logits, best first, ties by lower id. Blocks without a candidate are
// skipped by their largest value.
void find_top(const Kernels& kernels, const SamplerScratch& s, int64_t vocab, int32_t top,
              SampleResult& result) {
  constexpr int64_t kBlock = 256;
  float values[kMaxTopLogprobs];
  int32_t n = 0;
  for (int64_t start = 0; start < vocab && top > 0; start += kBlock) {
    const int64_t end = std::min(vocab, start + kBlock);
    if (n == top && kernels.max_value(s.logits.data() + start, end - start) <= values[n - 1])
      continue;
    for (int64_t i = start; i < end; ++i) {
      const float value = s.logits[static_cast<size_t>(i)];
      if (n == top && value <= values[n - 1]) continue;
      int32_t at = n < top ? n++ : n - 1;
      for (; at > 0 && values[at - 1] < value; --at) {
        values[at] = values[at - 1];
        result.top[at] = result.top[at - 1];
      }
      values[at] = value;
      result.top[at] = {static_cast<int32_t>(i), value};
    }
  }
  result.num_top = n;
}

void finish_raw(const Kernels& kernels, const float* raw, int64_t vocab, double log_total,
                SampleResult& result) {
  const float logit = raw[result.token];
  const float value =
      std::isnan(logit) ? kMinusInf : std::min(logit, std::numeric_limits<float>::max());
  result.logprob = static_cast<float>(static_cast<double>(value) - log_total);
  result.rank = static_cast<int32_t>(1 + kernels.count_better(raw, vocab, result.token, value));
  for (int32_t i = 0; i < result.num_top; ++i) {
    result.top[i].logprob =
        static_cast<float>(static_cast<double>(result.top[i].logprob) - log_total);
  }
}

bool in_range(int32_t id, int64_t vocab) { return id >= 0 && id < vocab; }

void apply_penalties(const SampleInput& in, SamplerScratch& s) {
  const SamplingRow& row = *in.row;
  s.distinct.clear();
  for (int32_t i = 0; i < in.length; ++i) {
    const int32_t id = in.history[i];
    if (!in_range(id, in.vocab)) continue;
    int32_t& seen = s.seen[static_cast<size_t>(id)];
    if (seen == 0) {
      seen = kSeenBit;
      s.distinct.push_back(id);
    }
    if (i >= in.prompt_len) ++seen;
  }
  for (const int32_t id : s.distinct) {
    float& logit = s.logits[static_cast<size_t>(id)];
    int32_t& seen = s.seen[static_cast<size_t>(id)];
    const int32_t outputs = seen & ~kSeenBit;
    seen = 0;
    if (row.repetition_penalty != 1.0f) {
      logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    }
    logit -= row.frequency_penalty * static_cast<float>(outputs);
    if (outputs > 0) logit -= row.presence_penalty;
  }
}

bool has_penalties(const SamplingRow& row) {
  return row.repetition_penalty != 1.0f || row.frequency_penalty != 0.0f ||
         row.presence_penalty != 0.0f;
}

bool is_masked(const SampleInput& in) {
  return in.num_masked > 0 && in.length - in.prompt_len < in.row->min_tokens;
}

// Last, so that nothing raises what the grammar forbids.
void apply_mask(const SampleInput& in, SamplerScratch& s) {
  for (int64_t first = 0; first < in.vocab; first += 32) {
    const uint32_t word = in.mask[first / 32];
    if (word == UINT32_MAX) continue;
    const int64_t end = std::min(in.vocab, first + 32);
    for (int64_t i = first; i < end; ++i) {
      if ((word >> (i - first) & 1u) == 0) s.logits[static_cast<size_t>(i)] = kMinusInf;
    }
  }
}

// The only token of the mask, or -1.
int32_t only_token(const SampleInput& in) {
  int32_t only = -1;
  for (int64_t at = 0; at < (in.vocab + 31) / 32; ++at) {
    const uint32_t word = in.mask[at];
    if (word == 0) continue;
    if (only >= 0 || !std::has_single_bit(word)) return -1;
    only = static_cast<int32_t>(at * 32 + std::countr_zero(word));
  }
  return only;
}

// Mask, bias and penalties in place.
void edit_logits(const SampleInput& in, SamplerScratch& s) {
  if (is_masked(in)) {
    for (int32_t i = 0; i < in.num_masked; ++i) {
      if (in_range(in.masked_ids[i], in.vocab))
        s.logits[static_cast<size_t>(in.masked_ids[i])] = kMinusInf;
    }
  }
  for (int32_t i = 0; i < in.num_bias; ++i) {
    if (in_range(in.bias_ids[i], in.vocab))
      s.logits[static_cast<size_t>(in.bias_ids[i])] += in.bias_values[i];
  }
  if (has_penalties(*in.row)) apply_penalties(in, s);
  if (in.mask != nullptr) apply_mask(in, s);
}

// Draw from the whole vocabulary: block sums lead to the block, a walk to the token.
int32_t draw_all(const SamplerScratch& s, int64_t vocab, double total, double uniform) {
  const double target = uniform * total;
  const int64_t blocks = (vocab + kExpBlock - 1) / kExpBlock;
  double before = 0;
  int64_t last = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const double sum = s.sums[static_cast<size_t>(b)];
    if (before + sum <= target) {
      before += sum;
      continue;
    }
    double held = before;
    for (int64_t i = b * kExpBlock; i < std::min(vocab, (b + 1) * kExpBlock); ++i) {
      const float mass = s.exps[static_cast<size_t>(i)];
      if (mass > 0) last = i;
      held += static_cast<double>(mass);
      if (held > target) return static_cast<int32_t>(i);
    }
    return static_cast<int32_t>(last);  // the block's own sum was rounded up
  }
  for (int64_t i = 0; i < vocab; ++i) {
    if (s.exps[static_cast<size_t>(i)] > 0) last = i;
  }
  return static_cast<int32_t>(last);
}

// A logit that at least `k` others reach: the k-th largest of the largest values of blocks. -inf
// when there are too few blocks.
float reached_by(const Kernels& kernels, SamplerScratch& s, int64_t vocab, size_t k) {
  constexpr int64_t kBlock = 64;
  s.tops.clear();
  for (int64_t i = 0; i < vocab; i += kBlock) {
    s.tops.push_back(kernels.max_value(s.logits.data() + i, std::min(kBlock, vocab - i)));
  }
  if (s.tops.size() < k) return kMinusInf;
  const auto nth = s.tops.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(s.tops.begin(), nth, s.tops.end(), std::greater<>());
  return *nth;
}

// Lists what can be drawn, without tails that the limits drop anyway: under top_k what is below a
// logit that k tokens reach; under top_p alone tokens so light that even `vocab` of them hold less
// than 1 - top_p of the mass.
void list_candidates(const Kernels& kernels, const SampleInput& in, float max, double total,
                     SamplerScratch& s) {
  const SamplingRow& row = *in.row;
  const bool limited = row.top_k > 0 && row.top_k < in.vocab;
  float least = std::max(row.min_p, std::numeric_limits<float>::min());
  float lowest = kMinusInf;
  if (limited) {
    lowest = reached_by(kernels, s, in.vocab, static_cast<size_t>(row.top_k));
  } else if (row.min_p <= 0 && row.top_p < 1) {
    const double light =
        (1.0 - static_cast<double>(row.top_p)) * total / static_cast<double>(in.vocab) * 0.5;
    least = std::max(least, static_cast<float>(light));
  }
  s.candidates.clear();
  for (int64_t i = 0; i < in.vocab; ++i) {
    const float mass = s.exps[static_cast<size_t>(i)];
    const float logit = s.logits[static_cast<size_t>(i)];
    if (mass < least || logit < lowest) continue;
    s.candidates.push_back(
        {static_cast<int32_t>(i), -logit, (max - logit) / row.temperature, mass});
  }
}

int32_t draw_token(const Kernels& kernels, const SampleInput& in, float max, SamplerScratch& s) {
  const SamplingRow& row = *in.row;
  const double total = kernels.exp_sum(s.exps.data(), s.sums.data(), s.logits.data(), in.vocab, max,
                                       row.temperature);
  const uint64_t seed = uint64_t{row.seed_hi} << 32 | row.seed_lo;
  const double uniform = uniform_draw(seed, static_cast<uint32_t>(in.length - in.prompt_len),
                                      static_cast<uint32_t>(row.sequence_index), 0);
  const bool limited = row.top_k > 0 && row.top_k < in.vocab;
  if (!limited && row.min_p <= 0 && row.top_p >= 1 && row.typical_p >= 1)
    return draw_all(s, in.vocab, total, uniform);
  list_candidates(kernels, in, max, total, s);
  if (limited) keep_best(s.candidates, static_cast<size_t>(row.top_k), s.bins);
  if (row.top_p < 1) {
    // Light tokens left out of the list still count in the total.
    keep_mass(s.candidates, static_cast<double>(row.top_p), limited || row.min_p > 0 ? -1.0 : total,
              s.bins);
  }
  if (row.typical_p < 1) keep_typical(s.candidates, static_cast<double>(row.typical_p), s.bins);
  return draw(s.candidates, uniform);
}

}  // namespace

SampleResult sample_row(const Kernels& kernels, const SampleInput& in, SamplerScratch& s) {
  const SamplingRow& row = *in.row;
  const bool greedy = !(row.temperature >= kGreedyBelow);
  const bool edits = in.num_bias > 0 || is_masked(in) || has_penalties(row) || in.mask != nullptr;
  const bool wants_logprobs = row.top_logprobs >= 0;
  SampleResult result;
  result.logprob = std::numeric_limits<float>::quiet_NaN();
  if (greedy && !edits && !wants_logprobs) {
    result.token = static_cast<int32_t>(kernels.argmax(in.logits, in.vocab));
    return result;
  }
  if (in.mask != nullptr && !wants_logprobs) {
    result.token = only_token(in);
    if (result.token >= 0) return result;
  }
  grow(s, in.vocab);
  float max = kernels.clean_copy(s.logits.data(), in.logits, in.vocab);
  double log_total = 0;
  if (wants_logprobs) {
    log_total = log_sum(kernels, s, in.vocab, max);
    const auto most = static_cast<int32_t>(std::min<int64_t>(kMaxTopLogprobs, in.vocab));
    find_top(kernels, s, in.vocab, std::min(row.top_logprobs, most), result);
  }
  if (edits) {
    edit_logits(in, s);
    // Again clean: a bias or penalty can leave the range of floats.
    max = kernels.clean_copy(s.logits.data(), s.logits.data(), in.vocab);
  }
  if (greedy || max == kMinusInf) {
    result.token = static_cast<int32_t>(kernels.argmax(s.logits.data(), in.vocab));
  } else {
    result.token = draw_token(kernels, in, max, s);
  }
  if (wants_logprobs) finish_raw(kernels, in.logits, in.vocab, log_total, result);
  return result;
}

SampleResult score_row(const Kernels& kernels, const float* logits, int64_t vocab, int32_t token,
                       int32_t top, SamplerScratch& s) {
  grow(s, vocab);
  const float max = kernels.clean_copy(s.logits.data(), logits, vocab);
  SampleResult result;
  result.token = token;
  const double log_total = log_sum(kernels, s, vocab, max);
  find_top(
      kernels, s, vocab,
      std::clamp<int32_t>(top, 0, static_cast<int32_t>(std::min<int64_t>(kMaxTopLogprobs, vocab))),
      result);
  finish_raw(kernels, logits, vocab, log_total, result);
  return result;
}

}  // namespace inferd::cpu
