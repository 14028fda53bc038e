// One draw: from a sorted list of candidates in one part, or from all that a filter keeps.
//
// The token is the first, in the order of ids, at which the sum of masses passes uniform * total.
#pragma once
#include "cuda/sampler/sampler_select.cuh"

namespace inferd::cuda::sampler {

// Philox4x32-10 (Salmon et al. 2011), as in native/cpu/sampler/rng.h: uniform in [0, 1) with 53
// bits, a pure function of the seed, the output position and the sequence index.
__device__ inline double uniform_draw(uint32_t seed_lo, uint32_t seed_hi, uint32_t position,
                                      uint32_t sequence) {
  uint32_t c0 = position, c1 = sequence, c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    const uint32_t a_high = __umulhi(0xD2511F53u, c0), a_low = 0xD2511F53u * c0;
    const uint32_t b_high = __umulhi(0xCD9E8D57u, c2), b_low = 0xCD9E8D57u * c2;
    c0 = b_high ^ c1 ^ seed_lo;
    c1 = b_low;
    c2 = a_high ^ c3 ^ seed_hi;
    c3 = a_low;
    seed_lo += 0x9E3779B9u;
    seed_hi += 0xBB67AE85u;
  }
  const uint64_t bits = (static_cast<uint64_t>(c0) << 32 | c1) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

struct ListLimits {
  int32_t top_k;    // 0: off
  float top_p;      // 1: off
  float typical_p;  // 1: off
  double total;     // mass that top_p shares when top_k is off
};

// One part, which holds the n candidates in its list, sorted; n > 0. Returns the token to all its
// threads.
__device__ inline int32_t draw_from_list(Shared& s, int n, const Filter& f,
                                         const ListLimits& limits, double uniform) {
  double upto[2];
  if (limits.top_k > 0) n = min(n, limits.top_k);
  if (limits.top_p < 1.f) {
    const double held = list_prefix(s, n, upto);
    const double goal =
        static_cast<double>(limits.top_p) * (limits.top_k > 0 ? held : limits.total);
    n = first_entry(s, n, upto[0] >= goal, upto[1] >= goal) + 1;
  }
  if (limits.typical_p < 1.f) {
    const double total = list_prefix(s, n, upto);
    // The mean spread, in the order of the list; masses are put back below.
    float spreads[2] = {};
    float masses[2] = {};
    for (int j = 0; j < 2; ++j) {
      const int at = 2 * threadIdx.x + j;
      if (at >= n) continue;
      spreads[j] = (f.max - logit_of(s.keys[at])) * f.inverse_temperature;
      masses[j] = s.masses[at];
    }
    double moment = static_cast<double>(masses[0]) * static_cast<double>(spreads[0]) +
                    static_cast<double>(masses[1]) * static_cast<double>(spreads[1]);
    double sum;
    warp_prefix(moment, sum);
    if (threadIdx.x % kWarp == 0) s.folds[threadIdx.x / kWarp] = sum;
    __syncthreads();
    moment = 0;
    for (int w = 0; w < kWarps; ++w) moment += s.folds[w];
    const float mean = static_cast<float>(moment / total);
    for (int j = 0; j < 2; ++j) {
      const int at = 2 * threadIdx.x + j;
      if (at < n) {
        s.keys[at] = typical_key(spreads[j], mean, static_cast<uint32_t>(id_of(s.keys[at])));
      }
    }
    sort_list(s, n);
    list_prefix(s, n, upto);
    const double goal = static_cast<double>(limits.typical_p) * total;
    n = first_entry(s, n, upto[0] >= goal, upto[1] >= goal) + 1;
  }
  for (int i = threadIdx.x; i < n; i += kThreads) s.keys[i] &= 0xffffffffu;  // the id alone
  sort_list(s, n);
  const double target = uniform * list_prefix(s, n, upto);
  return id_of(s.keys[first_entry(s, n, upto[0] > target, upto[1] > target)]);
}

// All parts. A warp owns a stretch of ids and a lane a run of it; sums lead to the part, the warp,
// the lane and the token. Returns true in the one thread that holds `token`.
__device__ inline bool draw_from_all(Shared& s, int& turn, const Slice& slice, const Filter& f,
                                     double uniform, int32_t& token) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  constexpr int kAlign = kWarps * kWarp * 4;
  const int run = (slice.padded + kAlign - 1) / kAlign * 4;
  const int stretch = warp * run * kWarp, begin = stretch + lane * run, words = run / 4;
  const auto mass = [&](int i, float z) {
    const Entry e = {z, (f.max - z) * f.inverse_temperature,
                     static_cast<uint32_t>(slice.begin + i)};
    return keeps(f, e) ? mass_of(e.spread) : 0.f;
  };
  float sum = 0.f;
  for (int j = 0; j < words; ++j) {
    // Turned by the lane, so that neighbouring lanes read different banks.
    int word = j + lane % words;
    if (word >= words) word -= words;
    const int i = begin + word * 4;
    if (i >= slice.padded) continue;
    const float4 v = *reinterpret_cast<const float4*>(slice.z + i);
    sum += (mass(i, v.x) + mass(i + 1, v.y)) + (mass(i + 2, v.z) + mass(i + 3, v.w));
  }
  const double own = static_cast<double>(sum);
  double total;
  warp_prefix(own, total);
  if (lane == 0) s.folds[warp] = total;
  __syncthreads();
  const double warps = lane < kWarps ? s.folds[lane] : 0.;
  warp_prefix(warps, total);
  const uint64_t* shown = show(s, turn, as_bits(total));

  const double parts = lane < static_cast<int>(part_count()) ? as_double(shown[lane]) : 0.;
  warp_prefix(parts, total);
  const double target = uniform * total;
  double held = 0;
  if (static_cast<uint32_t>(passing_lane(parts, target, held)) != part_rank()) return false;
  if (passing_lane(warps, target, held) != warp) return false;
  const int first = stretch + passing_lane(own, target, held) * run;
  int last = 0;  // the run's own sum may have been rounded up: then its last mass
  for (int start = 0; start < run; start += kWarp) {
    const int i = first + start + lane;
    const float here = start + lane < run && i < slice.padded ? mass(i, slice.z[i]) : 0.f;
    const unsigned any = __ballot_sync(kFullWarp, here > 0.f);
    if (any == 0) continue;
    warp_prefix(static_cast<double>(here), total);
    if (held + total > target) {
      last = start + passing_lane(static_cast<double>(here), target, held);
      break;
    }
    last = start + 31 - __clz(any);
    held += total;
  }
  token = slice.begin + first + last;
  return lane == 0;
}

}  // namespace inferd::cuda::sampler
