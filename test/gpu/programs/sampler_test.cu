// Sampling and scoring on a GPU: tokens, log-probabilities and ranks against a float64 reference
// and against the CPU sampler, then times.
//   ./sampler_test [check|quick|bench|greedy]     sources: programs.mjs; quick: few rows, for
//   compute-sanitizer; greedy: times of plain greedy alone
// A token that differs from the reference is a failure unless a limit or the draw was decided by
// less than kSlack of the mass.
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "cpu/sampler/sampler.h"
#include "sampler_batch.cuh"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

namespace {

constexpr double kSlack = 2e-5;

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
                          .num_masked = static_cast<int32_t>(in.masked_ids.size()),
                          .mask = in.mask.empty() ? nullptr : in.mask.data()},
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
      same = top_ids[i * kMaxTopLogprobs + j] == want.top_ids[j] &&
             near(static_cast<double>(top_logprobs[i * kMaxTopLogprobs + j]), want.top_logprobs[j]);
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
      same = top_ids[i * kMaxTopLogprobs + j] == want.top_ids[j] &&
             near(static_cast<double>(top_logprobs[i * kMaxTopLogprobs + j]), want.top_logprobs[j]);
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
