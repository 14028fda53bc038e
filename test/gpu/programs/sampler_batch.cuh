// Rows of random logits and sampling records, and a batch of them on the device, for the sampler's
// test program. Host code.
#pragma once
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cuda/sampler/sampler.h"
#include "gpu_test.cuh"
#include "sampler_reference.h"

namespace gpu_test {

using namespace inferd;
using namespace inferd::cuda;

constexpr int32_t kMaxLen = 4096, kMaxBias = 320, kMaxMasked = 32;

enum class Shape { kNormal, kPeaked, kRounded, kEqual, kHostile, kFlat, kCount };

inline float normal(uint64_t i, uint32_t seed) {
  float sum = 0;
  for (uint32_t j = 0; j < 4; ++j) sum += noise(i * 4 + j, seed);
  return sum * 0.866f;  // variance 1
}

inline std::vector<float> logits_of(Shape shape, int32_t vocab, uint32_t seed) {
  std::vector<float> z(static_cast<size_t>(vocab));
  for (size_t i = 0; i < z.size(); ++i) {
    const float x = normal(i, seed);
    switch (shape) {
      case Shape::kNormal:
        z[i] = 2 * x;
        break;
      case Shape::kPeaked:
        z[i] = 2 * x + (noise(i, seed + 1) > 0.999f ? 14.f : 0.f);
        break;
      case Shape::kRounded:
        z[i] = __bfloat162float(__float2bfloat16_rn(3 * x));
        break;
      case Shape::kEqual:
        z[i] = i % 7 == 3 ? -INFINITY : 1.5f;
        break;
      case Shape::kHostile: {
        const float y = noise(i, seed + 2);
        z[i] = y > 0.7f ? NAN : y < -0.7f ? -INFINITY : y > 0.699f ? INFINITY : 4 * x;
        if (seed % 3 == 0) z[i] = y > 0 ? NAN : -INFINITY;
        break;
      }
      default:
        z[i] = 0.01f * x - 100.f;
    }
  }
  return z;
}

inline RowInput random_row(int32_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  const auto real = [&](float a, float b) {
    return a + (b - a) * static_cast<float>(random() % 100000) / 100000.f;
  };
  RowInput in;
  in.logits = logits_of(static_cast<Shape>(pick(static_cast<int>(Shape::kCount))), vocab, seed);
  SamplingRow& row = in.row;
  std::memset(&row, 0, sizeof(row));
  row.seed_lo = static_cast<uint32_t>(random());
  row.seed_hi = static_cast<uint32_t>(random());
  row.sequence_index = pick(4);
  row.temperature = pick(6) == 0 ? 0.f : pick(3) == 0 ? real(0.1f, 3.f) : 1.f;
  row.top_p = pick(2) == 0 ? real(0.05f, 0.999f) : 1.f;
  row.typical_p = pick(4) == 0 ? real(0.1f, 0.99f) : 1.f;
  row.min_p = pick(4) == 0 ? real(0.0001f, 0.3f) : 0.f;
  const int limits[] = {1, 2, 20, 50, 1000, 1500, 40000, vocab - 1, vocab, vocab + 5};
  row.top_k = pick(2) == 0 ? std::max(limits[pick(10)], 0) : 0;
  row.repetition_penalty = pick(4) == 0 ? real(0.5f, 2.f) : 1.f;
  row.frequency_penalty = pick(4) == 0 ? real(-1.f, 2.f) : 0.f;
  row.presence_penalty = pick(4) == 0 ? real(-1.f, 2.f) : 0.f;
  const int tops[] = {-1, -1, 0, 1, 5, 20};
  row.top_logprobs = tops[pick(6)];
  row.prompt_logprobs = -1;
  const int32_t length = pick(8) == 0 ? kMaxLen : 1 + pick(pick(2) == 0 ? 20 : 3000);
  in.prompt_len = 1 + pick(length);
  const int32_t range = pick(2) == 0 ? vocab : std::min(vocab, 40);
  for (int32_t i = 0; i < length; ++i) in.history.push_back(pick(range) - (pick(50) == 0 ? 1 : 0));
  if (pick(3) == 0) {
    for (int n = pick(kMaxBias + 1), i = 0; i < n; ++i) {
      in.bias_ids.push_back(pick(vocab + 1));
      in.bias_values.push_back(pick(20) == 0 ? -INFINITY : real(-5.f, 5.f));
    }
  }
  if (pick(3) == 0) {
    row.min_tokens = pick(2) == 0 ? 1 << 20 : pick(100);
    for (int n = 1 + pick(4), i = 0; i < n; ++i) in.masked_ids.push_back(pick(vocab));
  }
  if (pick(4) == 0) {
    row.grammar = 1;
    in.mask.resize(static_cast<size_t>(vocab + 31) / 32);
    if (pick(2) == 0) {
      for (uint32_t& word : in.mask) word = static_cast<uint32_t>(random());
    }
    for (int n = 1 + pick(3), i = 0; i < n; ++i) {
      const int id = pick(vocab);
      in.mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    }
  }
  return in;
}

// The slot tables and outputs of a batch, sample i in slot rows - 1 - i.
struct Batch {
  explicit Batch(const std::vector<RowInput>& rows, int32_t vocab_, int32_t stride_)
      : count(static_cast<int32_t>(rows.size())),
        vocab(vocab_),
        stride(stride_),
        logits(static_cast<size_t>(count) * stride),
        samples(rows.size()),
        tokens(static_cast<size_t>(count) * kMaxLen),
        lengths(rows.size()),
        prompt_lens(rows.size()),
        sampling(rows.size()),
        bias(static_cast<size_t>(count) * 2 * kMaxBias),
        num_bias(rows.size()),
        masked(static_cast<size_t>(count) * kMaxMasked),
        num_masked(rows.size()),
        mask_words((vocab_ + 31) / 32),
        masks(static_cast<size_t>(count) * mask_words),
        out_tokens(rows.size()),
        logprobs(rows.size()),
        ranks(rows.size()),
        top_ids(static_cast<size_t>(count) * kMaxTopLogprobs),
        top_logprobs(static_cast<size_t>(count) * kMaxTopLogprobs),
        top_counts(rows.size()) {
    std::vector<TokenSample> plan(rows.size());
    std::vector<int32_t> t(tokens.size(), -7), l(rows.size()), p(rows.size()), b(bias.size()),
        nb(rows.size()), m(masked.size()), nm(rows.size());
    std::vector<float> z(logits.size(), NAN);
    std::vector<SamplingRow> s(rows.size());
    std::vector<uint32_t> allowed(static_cast<size_t>(count) * mask_words);
    for (size_t i = 0; i < rows.size(); ++i) {
      const RowInput& in = rows[i];
      const size_t slot = rows.size() - 1 - i;
      plan[i] = {static_cast<int32_t>(slot), 0};
      std::copy(in.logits.begin(), in.logits.end(), z.begin() + static_cast<int64_t>(i) * stride);
      std::copy(in.history.begin(), in.history.end(),
                t.begin() + static_cast<int64_t>(slot) * kMaxLen);
      l[slot] = static_cast<int32_t>(in.history.size());
      p[slot] = in.prompt_len;
      s[slot] = in.row;
      nb[slot] = static_cast<int32_t>(in.bias_ids.size());
      nm[slot] = static_cast<int32_t>(in.masked_ids.size());
      // All ids of a slot, then all values.
      const size_t ids = slot * 2 * kMaxBias;
      std::copy(in.bias_ids.begin(), in.bias_ids.end(), b.begin() + static_cast<int64_t>(ids));
      std::memcpy(&b[ids + kMaxBias], in.bias_values.data(), in.bias_values.size() * sizeof(float));
      std::copy(in.masked_ids.begin(), in.masked_ids.end(),
                m.begin() + static_cast<int64_t>(slot) * kMaxMasked);
      std::copy(in.mask.begin(), in.mask.end(),
                allowed.begin() + static_cast<int64_t>(slot) * mask_words);
    }
    masks.upload(allowed);
    samples.upload(plan);
    tokens.upload(t);
    lengths.upload(l);
    prompt_lens.upload(p);
    sampling.upload(s);
    bias.upload(b);
    num_bias.upload(nb);
    masked.upload(m);
    num_masked.upload(nm);
    logits.upload(z);
    size_t bytes = 0;
    CHECK_CUDA(sampler_scratch_bytes(vocab, count, bytes));
    if (bytes > 0) scratch = std::make_unique<Device<float>>(bytes / sizeof(float));
  }
  TokenOutputs outputs() const {
    return {out_tokens.get(), logprobs.get(),     ranks.get(),
            top_ids.get(),    top_logprobs.get(), top_counts.get()};
  }
  SampleParams params() const {
    return {.logits = logits.get(),
            .row_stride = stride,
            .vocab = vocab,
            .rows = count,
            .samples = samples.get(),
            .slots = {.tokens = tokens.get(),
                      .lengths = lengths.get(),
                      .prompt_lens = prompt_lens.get(),
                      .blocks = nullptr,
                      .sampling = sampling.get(),
                      .lists = {{bias.get(), num_bias.get(), 2, kMaxBias},
                                {masked.get(), num_masked.get(), 1, kMaxMasked}},
                      .masks = masks.get(),
                      .num_drafts = nullptr,  // samples have no offset
                      .max_slots = count,
                      .max_len = kMaxLen,
                      .max_blocks = 0,
                      .mask_words = mask_words,
                      .max_sample = 1},
            .out = outputs(),
            .scratch = scratch == nullptr ? nullptr : scratch->get()};
  }

  int32_t count, vocab, stride;
  Device<float> logits;
  Device<TokenSample> samples;
  Device<int32_t> tokens, lengths, prompt_lens;
  Device<SamplingRow> sampling;
  Device<int32_t> bias, num_bias, masked, num_masked;
  int32_t mask_words;
  Device<uint32_t> masks;
  Device<int32_t> out_tokens;
  Device<float> logprobs;
  Device<int32_t> ranks, top_ids;
  Device<float> top_logprobs;
  Device<int32_t> top_counts;
  std::unique_ptr<Device<float>> scratch;
};

}  // namespace gpu_test
