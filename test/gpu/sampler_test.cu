// Sampling and scoring on a GPU: tokens, log-probabilities and ranks against a float64 reference
// and against the CPU sampler, then times.
//   nvcc -std=c++20 -O3 -Inative/cuda -Inative -gencode arch=compute_90a,code=sm_90a
//        test/gpu/sampler_test.cu native/cuda/sampler.cu native/cuda/sampler_greedy.cu
//        native/cpu/sampler.cpp native/cpu/sampling_math.cpp native/cpu/kernels_reference.cpp
//        -o sampler_test
//   ./sampler_test [check|quick|bench|greedy]     quick: few rows, for
//   compute-sanitizer; greedy: times of plain greedy alone
// A token that differs from the reference is a failure unless a limit or the draw was decided by
// less than kSlack of the mass.
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "cpu/sampler.h"
#include "gpu_test.cuh"
#include "sampler.h"
#include "sampler_reference.h"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

namespace {

constexpr double kSlack = 2e-5;
constexpr int32_t kMaxLen = 4096, kMaxBias = 320, kMaxMasked = 32;

enum class Shape { kNormal, kPeaked, kRounded, kEqual, kHostile, kFlat, kCount };

float normal(uint64_t i, uint32_t seed) {
  float sum = 0;
  for (uint32_t j = 0; j < 4; ++j) sum += noise(i * 4 + j, seed);
  return sum * 0.866f;  // variance 1
}

std::vector<float> logits_of(Shape shape, int32_t vocab, uint32_t seed) {
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

RowInput random_row(int32_t vocab, uint32_t seed) {
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
        bias_ids(static_cast<size_t>(count) * kMaxBias),
        bias_values(static_cast<size_t>(count) * kMaxBias),
        num_bias(rows.size()),
        masked_ids(static_cast<size_t>(count) * kMaxMasked),
        num_masked(rows.size()),
        out_tokens(rows.size()),
        logprobs(rows.size()),
        ranks(rows.size()),
        top_ids(static_cast<size_t>(count) * kMaxTop),
        top_logprobs(static_cast<size_t>(count) * kMaxTop),
        top_counts(rows.size()) {
    std::vector<PlanSample> plan(rows.size());
    std::vector<int32_t> t(tokens.size(), -7), l(rows.size()), p(rows.size()), bi(bias_ids.size()),
        nb(rows.size()), mi(masked_ids.size()), nm(rows.size());
    std::vector<float> bv(bias_values.size()), z(logits.size(), NAN);
    std::vector<SamplingRow> s(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const RowInput& in = rows[i];
      const size_t slot = rows.size() - 1 - i;
      plan[i] = {static_cast<int32_t>(i), static_cast<int32_t>(slot)};
      std::copy(in.logits.begin(), in.logits.end(), z.begin() + static_cast<int64_t>(i) * stride);
      std::copy(in.history.begin(), in.history.end(),
                t.begin() + static_cast<int64_t>(slot) * kMaxLen);
      l[slot] = static_cast<int32_t>(in.history.size());
      p[slot] = in.prompt_len;
      s[slot] = in.row;
      nb[slot] = static_cast<int32_t>(in.bias_ids.size());
      nm[slot] = static_cast<int32_t>(in.masked_ids.size());
      std::copy(in.bias_ids.begin(), in.bias_ids.end(),
                bi.begin() + static_cast<int64_t>(slot) * kMaxBias);
      std::copy(in.bias_values.begin(), in.bias_values.end(),
                bv.begin() + static_cast<int64_t>(slot) * kMaxBias);
      std::copy(in.masked_ids.begin(), in.masked_ids.end(),
                mi.begin() + static_cast<int64_t>(slot) * kMaxMasked);
    }
    samples.upload(plan);
    tokens.upload(t);
    lengths.upload(l);
    prompt_lens.upload(p);
    sampling.upload(s);
    bias_ids.upload(bi);
    bias_values.upload(bv);
    num_bias.upload(nb);
    masked_ids.upload(mi);
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
                      .bias_ids = bias_ids.get(),
                      .bias_values = bias_values.get(),
                      .num_bias = num_bias.get(),
                      .masked_ids = masked_ids.get(),
                      .num_masked = num_masked.get(),
                      .max_slots = count,
                      .max_len = kMaxLen,
                      .max_blocks = 0,
                      .max_bias = kMaxBias,
                      .max_masked = kMaxMasked},
            .out = outputs(),
            .scratch = scratch == nullptr ? nullptr : scratch->get()};
  }

  int32_t count, vocab, stride;
  Device<float> logits;
  Device<PlanSample> samples;
  Device<int32_t> tokens, lengths, prompt_lens;
  Device<SamplingRow> sampling;
  Device<int32_t> bias_ids;
  Device<float> bias_values;
  Device<int32_t> num_bias, masked_ids, num_masked;
  Device<int32_t> out_tokens;
  Device<float> logprobs;
  Device<int32_t> ranks, top_ids;
  Device<float> top_logprobs;
  Device<int32_t> top_counts;
  std::unique_ptr<Device<float>> scratch;
};

bool near(double a, double b) {
  return a == b || std::abs(a - b) < 2e-5 * std::max(1.0, std::abs(b) / 10);
}

struct Tally {
  int tokens = 0, explained = 0, unlike_cpu = 0;
};

int32_t cpu_token(const RowInput& in, cpu::SamplerScratch& scratch) {
  return cpu::sample_row(*cpu::reference_kernels(),
                         {.logits = in.logits.data(),
                          .vocab = static_cast<int64_t>(in.logits.size()),
                          .row = &in.row,
                          .history = in.history.data(),
                          .length = static_cast<int32_t>(in.history.size()),
                          .prompt_len = in.prompt_len,
                          .bias_ids = in.bias_ids.data(),
                          .bias_values = in.bias_values.data(),
                          .num_bias = static_cast<int32_t>(in.bias_ids.size()),
                          .masked_ids = in.masked_ids.data(),
                          .num_masked = static_cast<int32_t>(in.masked_ids.size())},
                         scratch)
      .token;
}

void check_vocab(int32_t vocab, int32_t count, uint32_t seed, Tally& tally, cudaStream_t stream) {
  std::vector<RowInput> rows;
  for (int32_t i = 0; i < count; ++i)
    rows.push_back(random_row(vocab, seed + static_cast<uint32_t>(i)));
  const int32_t stride = seed % 2 == 0 ? vocab : vocab + 3;
  Batch batch(rows, vocab, stride), again(rows, vocab, stride);
  CHECK_CUDA(sample(batch.params(), SampleHint::kAny, Launch(stream, true)));
  CHECK_CUDA(sample(again.params(), SampleHint::kAny, stream));
  std::vector<RowResult> wants(rows.size());
  std::vector<int32_t> cpu_tokens(rows.size());
  std::vector<std::thread> threads;
  for (size_t worker = 0; worker < 16; ++worker) {
    threads.emplace_back([&, worker] {
      cpu::SamplerScratch scratch;
      for (size_t i = worker; i < rows.size(); i += 16) {
        wants[i] = sample_reference(rows[i]);
        cpu_tokens[i] = cpu_token(rows[i], scratch);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const auto tokens = batch.out_tokens.download(), ranks = batch.ranks.download(),
             top_ids = batch.top_ids.download(), top_counts = batch.top_counts.download(),
             history = batch.tokens.download(), lengths = batch.lengths.download();
  const auto logprobs = batch.logprobs.download(), top_logprobs = batch.top_logprobs.download();
  const auto repeat = again.out_tokens.download();
  const auto repeat_logprobs = again.logprobs.download();
  expect(tokens == repeat && std::memcmp(logprobs.data(), repeat_logprobs.data(),
                                         logprobs.size() * sizeof(float)) == 0,
         "vocab " + std::to_string(vocab) + ": a repeat differs");
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowInput& in = rows[i];
    RowResult& want = wants[i];
    const SamplingRow& r = in.row;
    char name[240];
    std::snprintf(name, sizeof name,
                  "vocab %d row %zu (seed %u): T %g k %d p %g min %g typ %g pen %g %g %g bias %zu "
                  "mask %zu top %d",
                  vocab, i, seed + static_cast<uint32_t>(i), r.temperature, r.top_k, r.top_p,
                  r.min_p, r.typical_p, r.repetition_penalty, r.frequency_penalty,
                  r.presence_penalty, in.bias_ids.size(), in.masked_ids.size(), r.top_logprobs);
    ++tally.tokens;
    if (tokens[i] != want.token) {
      ++tally.explained;
      expect(want.slack < kSlack, std::string(name) + ": token " + std::to_string(tokens[i]) +
                                      " not " + std::to_string(want.token) + ", slack " +
                                      std::to_string(want.slack));
    }
    if (tokens[i] != cpu_tokens[i]) ++tally.unlike_cpu;
    if (tokens[i] < 0 || tokens[i] >= vocab) continue;
    const size_t slot = rows.size() - 1 - i;
    const auto length = static_cast<int32_t>(in.history.size());
    if (length < kMaxLen) {
      expect(lengths[slot] == length + 1 &&
                 history[slot * kMaxLen + static_cast<size_t>(length)] == tokens[i],
             std::string(name) + ": history");
    } else {
      expect(lengths[slot] == length, std::string(name) + ": full history");
    }
    if (r.top_logprobs < 0) {
      expect(std::isnan(logprobs[i]) && ranks[i] == 0 && top_counts[i] == 0,
             std::string(name) + ": logprobs nobody asked for");
      continue;
    }
    score(in.logits, tokens[i], r.top_logprobs, want);
    expect(near(static_cast<double>(logprobs[i]), want.logprob),
           std::string(name) + ": logprob " + std::to_string(logprobs[i]) + " not " +
               std::to_string(want.logprob));
    expect(ranks[i] == want.rank, std::string(name) + ": rank " + std::to_string(ranks[i]) +
                                      " not " + std::to_string(want.rank));
    bool same = top_counts[i] == static_cast<int32_t>(want.top_ids.size());
    for (size_t j = 0; same && j < want.top_ids.size(); ++j) {
      same = top_ids[i * kMaxTop + j] == want.top_ids[j] &&
             near(static_cast<double>(top_logprobs[i * kMaxTop + j]), want.top_logprobs[j]);
    }
    expect(same, std::string(name) + ": top entries");
  }
}

void check_greedy_and_score(int32_t vocab, uint32_t seed, cudaStream_t stream) {
  const int32_t count = 24;
  std::vector<RowInput> rows;
  for (int32_t i = 0; i < count; ++i) {
    RowInput in = random_row(vocab, seed + static_cast<uint32_t>(i));
    in.row.temperature = 0;
    rows.push_back(in);
  }
  Batch batch(rows, vocab,
              vocab + 4 * static_cast<int32_t>(seed % 2) + static_cast<int32_t>(seed % 3));
  SampleParams padded = batch.params();
  CHECK_CUDA(sample(padded, SampleHint::kPlainGreedy, Launch(stream, true)));
  const auto tokens = batch.out_tokens.download();
  for (size_t i = 0; i < rows.size(); ++i) {
    int32_t best = 0;
    for (int32_t id = 0; id < vocab; ++id) {
      const float here = rows[i].logits[static_cast<size_t>(id)];
      const float held = rows[i].logits[static_cast<size_t>(best)];
      if (here > held || (std::isnan(held) && here > -INFINITY)) best = id;
    }
    expect(tokens[i] == best, "greedy, vocab " + std::to_string(vocab) + ", row " +
                                  std::to_string(i) + ": " + std::to_string(tokens[i]) + " not " +
                                  std::to_string(best));
  }
  std::vector<int32_t> targets;
  for (int32_t i = 0; i < count; ++i) {
    targets.push_back(i == 5 ? -1
                             : static_cast<int32_t>((seed + static_cast<uint32_t>(i) * 7919u) %
                                                    static_cast<uint32_t>(vocab)));
  }
  Device<int32_t> device_targets(targets);
  const int32_t top = static_cast<int32_t>(seed % 21);
  CHECK_CUDA(cuda::score({.logits = batch.logits.get(),
                          .row_stride = batch.stride,
                          .vocab = vocab,
                          .rows = count,
                          .targets = device_targets.get(),
                          .top = top,
                          .out = batch.outputs(),
                          .scratch = batch.params().scratch},
                         Launch(stream, true)));
  const auto ranks = batch.ranks.download(), top_ids = batch.top_ids.download();
  const auto logprobs = batch.logprobs.download(), top_logprobs = batch.top_logprobs.download();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (targets[i] < 0) continue;
    RowResult want;
    gpu_test::score(rows[i].logits, targets[i], top, want);
    bool same = near(static_cast<double>(logprobs[i]), want.logprob) && ranks[i] == want.rank;
    for (size_t j = 0; same && j < want.top_ids.size(); ++j) {
      same = top_ids[i * kMaxTop + j] == want.top_ids[j] &&
             near(static_cast<double>(top_logprobs[i * kMaxTop + j]), want.top_logprobs[j]);
    }
    expect(same, "score, vocab " + std::to_string(vocab) + ", row " + std::to_string(i) + ": " +
                     std::to_string(logprobs[i]) + " rank " + std::to_string(ranks[i]) + " not " +
                     std::to_string(want.logprob) + " rank " + std::to_string(want.rank));
  }
}

void bench(cudaStream_t stream, bool all) {
  constexpr int32_t kVocab = 128256;
  Device<uint8_t> big(size_t{2} << 30);
  big.fill(1);
  const double ceiling = read_ceiling(big.get(), big.size(), stream);
  std::printf("read ceiling %.0f GB/s, vocab %d\n", ceiling, kVocab);
  struct Kind {
    const char* name;
    float temperature, top_p, typical_p;
    int top_k;
    bool peaked, edits;
    int top;
    SampleHint hint;
  };
  const Kind kinds[] = {
      {"plain greedy (hint)", 0, 1, 1, 0, false, false, -1, SampleHint::kPlainGreedy},
      {"greedy", 0, 1, 1, 0, false, false, -1, SampleHint::kAny},
      {"temperature", 1, 1, 1, 0, false, false, -1, SampleHint::kAny},
      {"top_k 50", 1, 1, 1, 50, false, false, -1, SampleHint::kAny},
      {"top_k 50 top_p 0.9", 1, 0.9f, 1, 50, false, false, -1, SampleHint::kAny},
      {"top_p 0.9 peaked", 1, 0.9f, 1, 0, true, false, -1, SampleHint::kAny},
      {"top_p 0.9 flat", 1, 0.9f, 1, 0, false, false, -1, SampleHint::kAny},
      {"typical 0.9 flat", 1, 1, 0.9f, 0, false, false, -1, SampleHint::kAny},
      {"logprobs 20, greedy", 0, 1, 1, 0, false, false, 20, SampleHint::kAny},
      {"penalties, k, p", 1, 0.9f, 1, 50, false, true, -1, SampleHint::kAny},
      {"all with logprobs 20", 1, 0.9f, 0.9f, 50, true, true, 20, SampleHint::kAny}};
  std::printf("%-22s %10s %10s %10s %10s\n", "us", "1 row", "16 rows", "64 rows", "256 rows");
  for (const Kind& kind : kinds) {
    if (!all && kind.hint != SampleHint::kPlainGreedy) continue;
    std::printf("%-22s", kind.name);
    for (int32_t count : {1, 16, 64, 256}) {
      std::vector<RowInput> rows;
      const std::vector<float> shared =
          logits_of(kind.peaked ? Shape::kPeaked : Shape::kNormal, kVocab, 99);
      for (int32_t i = 0; i < count; ++i) {
        RowInput in;
        in.logits = shared;
        std::rotate(in.logits.begin(), in.logits.begin() + i * 331, in.logits.end());
        std::memset(&in.row, 0, sizeof(in.row));
        in.row.seed_lo = static_cast<uint32_t>(i);
        in.row.temperature = kind.temperature;
        in.row.top_p = kind.top_p;
        in.row.typical_p = kind.typical_p;
        in.row.top_k = kind.top_k;
        in.row.repetition_penalty = kind.edits ? 1.1f : 1.f;
        in.row.frequency_penalty = kind.edits ? 0.1f : 0.f;
        in.row.top_logprobs = kind.top;
        in.prompt_len = 500;
        for (int32_t j = 0; j < 1000; ++j) in.history.push_back((j * 7919 + i) % kVocab);
        if (kind.edits) {
          for (int32_t j = 0; j < 16; ++j) {
            in.bias_ids.push_back(j * 911);
            in.bias_values.push_back(0.5f);
          }
        }
        rows.push_back(in);
      }
      Batch batch(rows, kVocab, kVocab);
      const double us = time_in_graph(stream, count == 1 ? 20 : 5, 9, [&](int) {
        CHECK_CUDA(sample(batch.params(), kind.hint, Launch(stream, false)));
      });
      std::printf(" %10.1f", us);
      if (count == 256 && kind.hint == SampleHint::kPlainGreedy) {
        std::printf(" (%.0f %% of read ceiling)", 100 * 4.0 * count * kVocab / us / 1e3 / ceiling);
      }
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  if (what != "bench" && what != "greedy") {
    const int share = what == "quick" ? 8 : 1;
    Tally tally;
    uint32_t seed = 1;
    for (const auto& [vocab, count] : {std::pair{1, 8},
                                       {5, 64},
                                       {33, 128},
                                       {320, 256},
                                       {4096, 512},
                                       {32000, 256},
                                       {50257, 256},
                                       {128256, 384},
                                       {151936, 128},
                                       {600000, 32}}) {
      if (share > 1 && vocab > 130000) continue;
      check_vocab(vocab, std::max(count / share, 8), seed, tally, stream);
      check_greedy_and_score(vocab, seed, stream);
      seed += 1001;
    }
    std::printf(
        "%d tokens: %d differ from float64 within rounding, %d from the CPU sampler; %d failures\n",
        tally.tokens, tally.explained, tally.unlike_cpu, failures);
  }
  if (what != "check" && what != "quick") bench(stream, what != "greedy");
  return failures == 0 ? 0 : 1;
}
