// What one rank holds of a model that several compute together (tensor parallelism, Shoeybi et al.
// 2019): which heads, which inner features, which ids of the vocabulary.
//
//   q, k, v, gate, up   rows, by heads or inner features      o, down   the columns that belong to
//                                                                       those; sums over the ranks
//   embedding, head     rows, by ids of the vocabulary        norms     whole, on every rank
//   experts             of each its inner features; with `whole_experts` (expert parallelism,
//                       GShard, Lepikhin et al. 2020) neighbours among them, all of each
//
// Ranks that attend to sequences of their own (data-parallel attention, as in DeepSeek-V3, 2024)
// each have all of a model but its experts, of which `spread` says whose these are: size is 1 then.
//
// Where a model has fewer heads of keys and values than there are ranks, neighbours hold the same
// one: the query heads of a rank always belong to what it holds.
#pragma once
#include <algorithm>
#include <cstdint>

namespace inferd {

struct ModelConfig;

// The things first .. first + count - 1 of a row of them.
struct Share {
  int64_t first = 0, count = 0;

  // The same counted in parts, `parts` to each thing.
  Share times(int64_t parts) const { return {first * parts, count * parts}; }
};

struct Shard {
  // Whose experts are held, of how many ranks with rows of their own.
  struct Spread {
    int32_t rank = 0, ranks = 1;
  };

  int32_t rank = 0, size = 1;
  bool whole_experts = false;
  Spread spread{};

  // Of everything but, where they are spread, the experts.
  bool whole() const { return size == 1; }
  bool spreads() const { return spread.ranks > 1; }
  // Of `n` things of which every rank has as many.
  Share of(int64_t n) const { return {n / size * rank, n / size}; }
  // Of `n` inner features, in whole steps of kFeatureStep, which kernels want: some ranks have one
  // step more than others where the ranks do not divide them.
  static constexpr int64_t kFeatureStep = 8;
  bool in_steps(int64_t n) const { return n % kFeatureStep == 0 && n >= size * kFeatureStep; }
  Share features(int64_t n) const {
    if (!in_steps(n)) return of(n);
    const int64_t steps = n / kFeatureStep, first = steps * rank / size;
    return Share{first, steps * (rank + 1) / size - first}.times(kFeatureStep);
  }
  // How many ranks hold the same head of keys and values.
  int64_t kv_copies(int64_t kv_heads) const { return std::max<int64_t>(1, size / kv_heads); }
  Share kv_heads(int64_t n) const { return n >= size ? of(n) : Share{rank / kv_copies(n), 1}; }
  // Of `n` experts those of which this rank holds anything: all, or with `whole_experts` its own,
  // of which some ranks have one more than others where the ranks do not divide them.
  Share experts(int64_t n) const {
    if (!whole_experts) return {0, n};
    const auto [at, ranks] = spreads() ? spread : Spread{rank, size};
    const int64_t first = n * at / ranks;
    return {first, n * (at + 1) / ranks - first};
  }
  // What it holds of the `n` inner features of each of those.
  Share expert_features(int64_t n) const { return whole_experts ? Share{0, n} : features(n); }
  // Ids for each rank; the last ranks may find fewer, or none. Multiples of 64 suit kernels.
  int64_t vocab_width(int64_t vocab) const {
    constexpr int64_t kStep = 64;
    return whole() ? vocab : (vocab + kStep * size - 1) / (kStep * size) * kStep;
  }
  Share vocab(int64_t vocab) const {
    const int64_t width = vocab_width(vocab), first = std::min(vocab, width * rank);
    return {first, std::min(width, vocab - first)};
  }
};

// Throws Error(kUnsupported) naming the number of the model that cannot be split as `shard` says,
// or that there are no experts to spread.
void check_divides(const ModelConfig& model, const Shard& shard);

}  // namespace inferd
