// Sampling of one row in float64 by sorting the vocabulary: what the GPU sampler is checked
// against. Besides the token it says how close the nearest decision was, so that a rounding
// difference can be told from a fault. Host code of the test programs.
#pragma once
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "core/plan/sampling_row.h"
#include "cpu/sampler/rng.h"

namespace gpu_test {

struct RowInput {
  std::vector<float> logits;
  inferd::SamplingRow row;
  std::vector<int32_t> history;
  int32_t prompt_len = 0;
  std::vector<int32_t> bias_ids, masked_ids;
  std::vector<float> bias_values;
  std::vector<uint32_t> mask;  // of a grammar, as SlotTables::masks; empty: none
};

struct RowResult {
  int32_t token = 0;
  double slack = 1;  // share of the mass by which the nearest limit or draw was decided
  double logprob = 0;
  int32_t rank = 1;
  std::vector<int32_t> top_ids;
  std::vector<double> top_logprobs;
};

inline float clean(float z) {
  return std::isnan(z) ? -INFINITY : std::min(z, std::numeric_limits<float>::max()) + 0.f;
}

inline std::vector<int32_t> sorted_ids(const std::vector<float>& z) {
  std::vector<int32_t> order(z.size());
  for (size_t i = 0; i < z.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return z[static_cast<size_t>(a)] > z[static_cast<size_t>(b)];
  });
  return order;
}

inline void edit(const RowInput& in, std::vector<float>& z) {
  const auto vocab = static_cast<int32_t>(z.size());
  const auto inside = [&](int32_t id) { return id >= 0 && id < vocab; };
  const auto outputs = static_cast<int32_t>(in.history.size()) - in.prompt_len;
  if (outputs < in.row.min_tokens) {
    for (int32_t id : in.masked_ids) {
      if (inside(id)) z[static_cast<size_t>(id)] = -INFINITY;
    }
  }
  for (size_t i = 0; i < in.bias_ids.size(); ++i) {
    if (inside(in.bias_ids[i])) z[static_cast<size_t>(in.bias_ids[i])] += in.bias_values[i];
  }
  std::map<int32_t, int32_t> counts;
  for (size_t i = 0; i < in.history.size(); ++i) {
    if (inside(in.history[i]))
      counts[in.history[i]] += static_cast<int32_t>(i) >= in.prompt_len ? 1 : 0;
  }
  const inferd::SamplingRow& row = in.row;
  if (row.repetition_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0) {
    for (const auto& [id, count] : counts) {
      float& logit = z[static_cast<size_t>(id)];
      if (row.repetition_penalty != 1)
        logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
      const float frequency = row.frequency_penalty * static_cast<float>(count);
      logit -= frequency;
      if (count > 0) logit -= row.presence_penalty;
    }
  }
  for (size_t i = 0; i < z.size() && !in.mask.empty(); ++i) {
    if ((in.mask[i / 32] >> (i % 32) & 1u) == 0) z[i] = -INFINITY;
  }
  for (float& logit : z) logit = clean(logit);
}

// Keeps the smallest prefix of `ids` that holds `share` of `total`.
inline void keep_share(std::vector<int32_t>& ids, const std::vector<double>& mass, double share,
                       double total, double& slack) {
  double held = 0;
  const double goal = share * total;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double next = held + mass[static_cast<size_t>(ids[i])];
    if (next >= goal || i + 1 == ids.size()) {
      slack = std::min({slack, std::abs(next - goal) / total, std::abs(goal - held) / total});
      ids.resize(i + 1);
      return;
    }
    held = next;
  }
}

inline int32_t draw(const RowInput& in, const std::vector<float>& z, double& slack) {
  const inferd::SamplingRow& row = in.row;
  std::vector<int32_t> ids = sorted_ids(z);
  const double max = static_cast<double>(z[static_cast<size_t>(ids[0])]);
  const double heat = static_cast<double>(row.temperature);
  std::vector<double> mass(z.size()), spread(z.size());
  for (size_t i = 0; i < z.size(); ++i) {
    spread[i] = (max - static_cast<double>(z[i])) / heat;
    mass[i] = std::exp(-spread[i]);
  }
  const double least = std::max(static_cast<double>(row.min_p),
                                static_cast<double>(std::numeric_limits<float>::min()));
  size_t kept = 0;
  while (kept < ids.size() && mass[static_cast<size_t>(ids[kept])] >= least) ++kept;
  if (row.min_p > 0) {
    for (size_t i = kept - 1; i <= kept && i < ids.size(); ++i) {
      const double m = mass[static_cast<size_t>(ids[i])];
      if (m > 0 && m < 1) slack = std::min(slack, std::abs(m / least - 1));
    }
  }
  ids.resize(kept);
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < ids.size())
    ids.resize(static_cast<size_t>(row.top_k));
  const auto total_of = [&] {
    double total = 0;
    for (int32_t id : ids) total += mass[static_cast<size_t>(id)];
    return total;
  };
  if (row.top_p < 1) keep_share(ids, mass, static_cast<double>(row.top_p), total_of(), slack);
  if (row.typical_p < 1) {
    const double total = total_of();
    double mean = 0;
    for (int32_t id : ids)
      mean += mass[static_cast<size_t>(id)] * spread[static_cast<size_t>(id)] / total;
    const auto distance = [&](int32_t id) {
      return std::abs(spread[static_cast<size_t>(id)] - mean);
    };
    std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return distance(a) < distance(b) || (distance(a) == distance(b) && a < b);
    });
    const std::vector<int32_t> all = ids;
    keep_share(ids, mass, static_cast<double>(row.typical_p), total, slack);
    // Neighbours of the limit whose distances f32 cannot tell apart may change places.
    if (ids.size() < all.size()) {
      const double gap = distance(all[ids.size()]) - distance(all[ids.size() - 1]);
      if (gap < 1e-5 * (1 + mean)) slack = 0;
    }
  }
  std::sort(ids.begin(), ids.end());
  const auto outputs =
      static_cast<uint32_t>(in.history.size()) - static_cast<uint32_t>(in.prompt_len);
  const uint64_t seed = uint64_t{row.seed_hi} << 32 | row.seed_lo;
  const double total = total_of();
  const double target =
      inferd::uniform_draw(seed, outputs, static_cast<uint32_t>(row.sequence_index), 0) * total;
  double held = 0;
  for (int32_t id : ids) {
    const double next = held + mass[static_cast<size_t>(id)];
    if (next > target) {
      slack = std::min({slack, (next - target) / total, (target - held) / total});
      return id;
    }
    held = next;
  }
  return ids.back();
}

inline void score(const std::vector<float>& logits, int32_t token, int32_t top, RowResult& r) {
  std::vector<float> z = logits;
  for (float& x : z) x = clean(x);
  const std::vector<int32_t> order = sorted_ids(z);
  const double max = static_cast<double>(z[static_cast<size_t>(order[0])]);
  double total = 0;
  for (float x : z) total += std::exp(static_cast<double>(x) - max);
  const double log_total = max == -INFINITY ? 0 : max + std::log(total);
  const float chosen = z[static_cast<size_t>(token)];
  r.logprob = static_cast<double>(chosen) - log_total;
  r.rank = 1;
  for (size_t i = 0; i < z.size(); ++i) {
    if (static_cast<int32_t>(i) < token ? logits[i] >= chosen
                                        : static_cast<int32_t>(i) > token && logits[i] > chosen)
      ++r.rank;
  }
  for (int32_t i = 0; i < std::min<int32_t>(top, static_cast<int32_t>(z.size())); ++i) {
    r.top_ids.push_back(order[static_cast<size_t>(i)]);
    r.top_logprobs.push_back(
        static_cast<double>(z[static_cast<size_t>(order[static_cast<size_t>(i)])]) - log_total);
  }
}

inline RowResult sample_reference(const RowInput& in) {
  RowResult r;
  std::vector<float> z = in.logits;
  for (float& x : z) x = clean(x);
  edit(in, z);
  const auto best = std::max_element(z.begin(), z.end());
  r.token = static_cast<int32_t>(best - z.begin());
  if (in.row.temperature >= 1e-5f && *best > -INFINITY) r.token = draw(in, z, r.slack);
  return r;
}

}  // namespace gpu_test
