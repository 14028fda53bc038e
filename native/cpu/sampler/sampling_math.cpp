// See sampling_math.h.
#include "cpu/sampler/sampling_math.h"

#include <algorithm>
#include <cmath>

namespace inferd::cpu {
namespace {

// 64 bins a nat up to 64 nats; what is farther falls in the last bin.
constexpr float kBinsPerNat = 64;
constexpr size_t kBins = 4096;

size_t bin_of(const Candidate& c) {
  const float b = c.spread * kBinsPerNat;
  return b < static_cast<float>(kBins - 1) ? static_cast<size_t>(b) : kBins - 1;
}

bool better(const Candidate& a, const Candidate& b) {
  return a.order < b.order || (a.order == b.order && a.id < b.id);
}

double total_mass(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& c : candidates) total += static_cast<double>(c.mass);
  return total;
}

void collect(const std::vector<Candidate>& candidates, size_t bin, BinScratch& scratch) {
  scratch.inside.clear();
  for (const Candidate& c : candidates) {
    if (bin_of(c) == bin) scratch.inside.push_back(c);
  }
}

// Drops everything behind `last`, which lies in `bin`.
void cut_after(std::vector<Candidate>& candidates, size_t bin, const Candidate& last) {
  std::erase_if(candidates, [&](const Candidate& c) {
    const size_t b = bin_of(c);
    return b > bin || (b == bin && better(last, c));
  });
}

}  // namespace

void keep_best(std::vector<Candidate>& candidates, size_t k, BinScratch& scratch) {
  if (k == 0 || candidates.size() <= k) return;
  scratch.count.assign(kBins, 0);
  for (const Candidate& c : candidates) ++scratch.count[bin_of(c)];
  size_t bin = 0, before = 0;
  while (before + static_cast<size_t>(scratch.count[bin]) < k)
    before += static_cast<size_t>(scratch.count[bin++]);
  collect(candidates, bin, scratch);
  const auto nth = scratch.inside.begin() + static_cast<std::ptrdiff_t>(k - before - 1);
  std::nth_element(scratch.inside.begin(), nth, scratch.inside.end(), better);
  cut_after(candidates, bin, *nth);
}

void keep_mass(std::vector<Candidate>& candidates, double share, double total,
               BinScratch& scratch) {
  const double wanted = share * (total < 0 ? total_mass(candidates) : total);
  scratch.mass.assign(kBins, 0.0);
  for (const Candidate& c : candidates) scratch.mass[bin_of(c)] += static_cast<double>(c.mass);
  size_t bin = 0;
  double before = 0;
  while (bin + 1 < kBins && before + scratch.mass[bin] < wanted) before += scratch.mass[bin++];
  collect(candidates, bin, scratch);
  if (scratch.inside.empty()) return;  // only by rounding: everything is wanted
  std::sort(scratch.inside.begin(), scratch.inside.end(), better);
  size_t last = 0;
  double held = before + static_cast<double>(scratch.inside[0].mass);
  while (held < wanted && last + 1 < scratch.inside.size())
    held += static_cast<double>(scratch.inside[++last].mass);
  cut_after(candidates, bin, scratch.inside[last]);
}

void keep_typical(std::vector<Candidate>& candidates, double share, BinScratch& scratch) {
  // -log p = spread + log(total), so the distance to the entropy is that of spread to its mean.
  const double total = total_mass(candidates);
  double mean = 0;
  for (const Candidate& c : candidates)
    mean += static_cast<double>(c.mass) * static_cast<double>(c.spread) / total;
  for (Candidate& c : candidates) {
    c.order = static_cast<float>(std::abs(static_cast<double>(c.spread) - mean));
    c.spread = c.order;
  }
  keep_mass(candidates, share, total, scratch);
}

int32_t draw(const std::vector<Candidate>& candidates, double uniform) {
  const double target = uniform * total_mass(candidates);
  double held = 0;
  for (const Candidate& c : candidates) {
    held += static_cast<double>(c.mass);
    if (held > target) return c.id;
  }
  return candidates.back().id;
}

}  // namespace inferd::cpu
