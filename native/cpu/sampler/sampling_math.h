// The steps of sampling on a list of candidates: limits, typical set, draw. Plain functions, called
// by sampler.cpp on a pool thread.
//
// Candidates stay in order of their ids throughout. "Best first" is by `order` ascending, then id.
// Nothing sorts a whole vocabulary: candidates are counted (or weighed) in narrow bins of `spread`,
// which grows with `order`, and only the bin that holds the limit is looked at in detail.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace inferd::cpu {

struct Candidate {
  int32_t id;
  float order;   // smaller is better: minus the logit, or the typical score
  float spread;  // >= 0, grows with order: nats below the best, or the typical score
  float mass;    // exp((logit - best) / temperature)
};

struct BinScratch {
  std::vector<double> mass;
  std::vector<int32_t> count;
  std::vector<Candidate> inside;
};

// Keeps exactly the `k` best (all when there are fewer).
void keep_best(std::vector<Candidate>& candidates, size_t k, BinScratch& scratch);

// Keeps the smallest set of best candidates that holds `share` of `total` mass (< 0: of what the
// list holds); at least one.
void keep_mass(std::vector<Candidate>& candidates, double share, double total, BinScratch& scratch);

// Keeps the smallest set closest to the expected information that holds `share` of the mass; at
// least one (Meister et al., "Locally typical sampling", 2022). Overwrites order and spread.
void keep_typical(std::vector<Candidate>& candidates, double share, BinScratch& scratch);

// Inverse of the cumulative distribution in the order of ids at `uniform` in [0, 1).
int32_t draw(const std::vector<Candidate>& candidates, double uniform);

}  // namespace inferd::cpu
