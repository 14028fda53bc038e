// Finding the k best, or the best that hold a share of the mass, without sorting the vocabulary.
//
// Entries are counted (or weighed) in kBins bins of their order, best first; each part has its own
// bins, and all parts look for the bin where the goal is reached:
//
//     bin      0    1    2   ...    b    ...  2047
//     before  |------------------|
//     goal                        ^ inside bin b
//
// What lies in that bin goes to a list in part 0, which is sorted. A bin with more entries than the
// list holds is cut again by ranges of keys. Counts and masses are integers in the bins, so that
// the order in which threads add them does not matter.
//
// For few entries it is enough to bin each thread's best one: a bin that k of them reach is reached
// by k entries, and hardly more lie in front of it.
#pragma once
#include "cuda/sampler/sampler_row.cuh"

namespace inferd::cuda::sampler {

// 72 bins a nat up to 28.4 nats below the best, where a token has 4e-13 of its probability.
constexpr float kBinsPerNat = 72.f, kReach = 28.42f;

// Which entries can still be drawn. mass = exp(-spread), spread = (max - logit) / temperature.
struct Filter {
  float max, inverse_temperature;
  float reach;  // spread at most this
  uint64_t least_key = 0;
  float typical_mean = 0.f;
  uint64_t least_typical = 0;  // 0: not limited
};

__device__ inline float mass_of(float spread) { return fast_exp2(-spread * kLog2e); }

struct Entry {
  float z, spread;
  uint32_t id;

  __device__ uint64_t key() const { return make_key(z, id); }
};

// Order of typical sampling: the distance to the mean spread, then id.
__device__ inline uint64_t typical_key(float spread, float mean, uint32_t id) {
  const uint32_t distance = __float_as_uint(fabsf(spread - mean));
  return static_cast<uint64_t>(~distance) << 32 | (0xffffffffu - id);
}

__device__ inline bool keeps(const Filter& f, const Entry& e) {
  if (!(e.spread <= f.reach)) return false;
  if (f.least_key != 0 && e.key() < f.least_key) return false;
  return f.least_typical == 0 || typical_key(e.spread, f.typical_mean, e.id) >= f.least_typical;
}

// Visits what the filter keeps.
struct Kept {
  const Slice& slice;
  const Filter& f;

  template <class Body>
  __device__ void operator()(const Body& body) const {
    each(slice, [&](int i, float z) {
      const Entry e = {z, (f.max - z) * f.inverse_temperature,
                       static_cast<uint32_t>(slice.begin + i)};
      if (keeps(f, e)) body(e);
    });
  }
};

// Visits the best entry of each thread, when the filter keeps it.
struct Own {
  const Filter& f;
  uint64_t key;  // 0: the thread has none

  template <class Body>
  __device__ void operator()(const Body& body) const {
    const float z = logit_of(key);
    const Entry e = {z, (f.max - z) * f.inverse_temperature, static_cast<uint32_t>(id_of(key))};
    if (key != 0 && keeps(f, e)) body(e);
  }
};

// Visits every entry, those at -inf too.
struct Everything {
  const Slice& slice;
  float max;

  template <class Body>
  __device__ void operator()(const Body& body) const {
    each(slice, [&](int i, float z) {
      if (i < slice.count) body(Entry{z, max - z, static_cast<uint32_t>(slice.begin + i)});
    });
  }
};

__device__ inline int bin_of(float distance) {
  return min(__float2int_rz(distance * kBinsPerNat), kBins - 1);
}

// An order says an entry's bin (negative: not looked at), its key, and how many bins below the best
// spread the heaviest entry of a bin lies.
struct ByLogit {
  __device__ int bin(const Entry& e) const { return bin_of(e.spread); }
  __device__ uint64_t key(const Entry& e) const { return e.key(); }
  __device__ int depth(int bin) const { return bin; }
};
struct ByTypical {
  float mean;
  __device__ int bin(const Entry& e) const { return bin_of(fabsf(e.spread - mean)); }
  __device__ uint64_t key(const Entry& e) const { return typical_key(e.spread, mean, e.id); }
  __device__ int depth(int bin) const { return max(0, bin_of(mean) - bin - 1); }
};
// Entries with keys in [lowest, highest], in steps of 2^shift.
template <class Order>
struct ByRange {
  const Order& order;
  uint64_t highest, lowest;
  int shift, fixed_depth;
  __device__ int bin(const Entry& e) const {
    const uint64_t k = order.key(e);
    return k > highest || k < lowest ? -1 : static_cast<int>((highest - k) >> shift);
  }
  __device__ uint64_t key(const Entry& e) const { return order.key(e); }
  __device__ int depth(int) const { return fixed_depth; }
};

// What bins add up. Masses are scaled by 2^exponent, so that the heaviest entry that a bin can hold
// is at most 1, and rounded to words of `bits` bits. One word finds the bin within some 4e-6 of the
// mass, two are exact for f32.
enum class Weigh { kCount, kMass, kFineMass };

__device__ inline int exponent_of(int depth) { return depth * 1313 >> 16; }  // log2(e) / 72
__device__ inline float power_of_two(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
}
// So that a part's entries together cannot overflow a word.
__device__ inline int word_bits(int32_t slice_padded) {
  return min(17, __clz(slice_padded | 1) - 1);
}

template <Weigh kWeigh, class Order>
__device__ double bin_value(const Shared& s, const Order& order, int bin, int bits) {
  if constexpr (kWeigh == Weigh::kCount) {
    return static_cast<double>(s.low()[bin]);
  } else {
    double words = static_cast<double>(s.high()[bin]);
    if (kWeigh == Weigh::kFineMass) words += s.low()[bin] * power_of_two(-bits);
    return words * power_of_two(-exponent_of(order.depth(bin)) - bits);
  }
}

// Fills the bins of all parts and finds where `base` plus the bins reaches the goal. Between two
// calls there must be a parts_sync().
template <Weigh kWeigh, class Visit, class Order>
__device__ Bound locate(Shared& s, const Visit& visit, const Order& order, int bits, double base,
                        double goal) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int i = threadIdx.x; i < kBins; i += kThreads) {
    if (kWeigh != Weigh::kMass) s.low()[i] = 0;
    if (kWeigh != Weigh::kCount) s.high()[i] = 0;
  }
  __syncthreads();
  visit([&](const Entry& e) {
    const int bin = order.bin(e);
    if (bin < 0) return;
    if constexpr (kWeigh == Weigh::kCount) {
      atomicAdd(s.low() + bin, 1u);
      return;
    }
    const float scale = power_of_two(bits);
    const float most = power_of_two(exponent_of(order.depth(bin)));
    const float x = fminf(mass_of(e.spread) * most, 1.f) * scale;
    if constexpr (kWeigh == Weigh::kMass) {
      atomicAdd(s.high() + bin, __float2uint_rn(x));
    } else {
      const float whole = floorf(x);
      atomicAdd(s.high() + bin, __float2uint_rz(whole));
      atomicAdd(s.low() + bin, __float2uint_rn((x - whole) * scale));
    }
  });
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kGroups / kWarps; ++j) {
    const int group = warp + j * kWarps;
    double total = bin_value<kWeigh>(s, order, group * kWarp + lane, bits);
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      total += __shfl_xor_sync(kFullWarp, total, step);
    }
    if (lane == 0) s.groups[group] = total;
  }
  parts_sync();
  if (warp == 0) {
    const uint32_t parts = part_count();
    double pair[2] = {}, total;
    double2 theirs[kMaxParts];  // all reads at once: each takes long
#pragma unroll
    for (uint32_t r = 0; r < kMaxParts; ++r) {
      theirs[r] =
          *reinterpret_cast<const double2*>(of_part(s.groups, r < parts ? r : 0) + 2 * lane);
    }
#pragma unroll
    for (uint32_t r = 0; r < kMaxParts; ++r) {
      if (r < parts) {
        pair[0] += theirs[r].x;
        pair[1] += theirs[r].y;
      }
    }
    const double after = warp_prefix(pair[0] + pair[1], total);
    double before = __shfl_up_sync(kFullWarp, after, 1);
    before = base + (lane == 0 ? 0. : before);
    const unsigned reached = __ballot_sync(kFullWarp, base + after >= goal);
    Bound b = {.before = 0, .inside = 0, .goal = goal, .bin = 0, .found = 0};
    if (reached != 0) {
      const int at = __ffs(static_cast<int>(reached)) - 1;
      const bool first = before + pair[0] >= goal;
      const int group = __shfl_sync(kFullWarp, 2 * lane + (first ? 0 : 1), at);
      before = __shfl_sync(kFullWarp, first ? before : before + pair[0], at);
      const int bin = group * kWarp + lane;
      double value = 0, values[kMaxParts];
#pragma unroll
      for (uint32_t r = 0; r < kMaxParts; ++r) {
        values[r] = bin_value<kWeigh>(*of_part(&s, r < parts ? r : 0), order, bin, bits);
      }
#pragma unroll
      for (uint32_t r = 0; r < kMaxParts; ++r) {
        if (r < parts) value += values[r];
      }
      const double upto = warp_prefix(value, total);
      unsigned hits = __ballot_sync(kFullWarp, before + upto >= goal);
      // None only by rounding: then the last bin that holds anything.
      if (hits == 0) hits = 1u << (31 - __clz(__ballot_sync(kFullWarp, value > 0) | 1));
      const int last = __ffs(static_cast<int>(hits)) - 1;
      b.before = before + __shfl_sync(kFullWarp, upto - value, last);
      b.inside = __shfl_sync(kFullWarp, value, last);
      b.bin = group * kWarp + last;
      b.found = 1;
    }
    if (lane == 0) s.bound = b;
  }
  __syncthreads();
  return s.bound;
}

// Lists what `want(entry)` says of all parts in part 0, in no order. Returns how many there are;
// the list is there only when they fit.
template <class Visit, class Order, class Want>
__device__ int gather(Shared& s, int& turn, const Visit& visit, const Order& order,
                      const Want& want) {
  if (threadIdx.x == 0) s.list_count = 0;
  __syncthreads();
  visit([&](const Entry& e) {
    if (!want(e) || *const_cast<volatile int32_t*>(&s.list_count) > kListMax) return;
    const int at = atomicAdd(&s.list_count, 1);
    if (at >= kListMax) return;
    s.keys[at] = order.key(e);
    s.masses[at] = mass_of(e.spread);
  });
  __syncthreads();
  const uint64_t* counts = show(s, turn, static_cast<uint64_t>(s.list_count));
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  uint64_t total = 0, before = 0;  // before: lists that come ahead of this warp's
  for (uint32_t r = 0; r < part_count(); ++r) {
    if (r < warp) before += counts[r];
    total += counts[r];
  }
  if (total > kListMax) return kListMax + 1;
  if (part_rank() == 0 && warp > 0 && warp < part_count()) {  // a warp fetches a part's list
    const uint64_t* keys = of_part(s.keys, warp);
    const float* masses = of_part(s.masses, warp);
    for (uint32_t i = lane; i < counts[warp]; i += kWarp) {
      s.keys[before + i] = keys[i];
      s.masses[before + i] = masses[i];
    }
  }
  parts_sync();  // the others may now fill their lists again, or end
  return static_cast<int>(total);
}

// One part. Sorts the first n of the list, largest key first; what follows becomes key 0, mass 0.
// A bitonic network: a thread compares one pair a step, in strides up to kWarp within its warp.
__device__ inline void sort_list(Shared& s, int n) {
  int size = 2 * kWarp;
  while (size < n) size *= 2;
  for (int i = n + threadIdx.x; i < size; i += kThreads) {
    s.keys[i] = 0;
    s.masses[i] = 0.f;
  }
  __syncthreads();
  const int pair = threadIdx.x;
  for (int width = 2; width <= size; width *= 2) {
    for (int stride = width / 2; stride > 0; stride /= 2) {
      if (pair < size / 2) {
        const int a = 2 * (pair & ~(stride - 1)) + (pair & (stride - 1)), b = a + stride;
        const bool falling = (a & width) == 0;
        const uint64_t ka = s.keys[a], kb = s.keys[b];
        if ((ka < kb) == falling) {
          const float ma = s.masses[a], mb = s.masses[b];
          s.keys[a] = kb;
          s.keys[b] = ka;
          s.masses[a] = mb;
          s.masses[b] = ma;
        }
      }
      const int next = stride > 1 ? stride / 2 : width;
      if (stride > kWarp || next > kWarp) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

// One part. Masses of the list up to and with entries 2t and 2t + 1 of thread t; returns the total.
__device__ inline double list_prefix(Shared& s, int n, double (&upto)[2]) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, at = 2 * threadIdx.x;
  const double a = at < n ? s.masses[at] : 0., b = at + 1 < n ? s.masses[at + 1] : 0.;
  double total, all;
  const double after = warp_prefix(a + b, total);
  if (lane == 0) s.folds[warp] = total;
  __syncthreads();
  const double warps = warp_prefix(lane < kWarps ? s.folds[lane] : 0., all);
  double before = warp == 0 ? 0. : __shfl_sync(kFullWarp, warps, warp - 1);
  __syncthreads();
  const double previous = __shfl_up_sync(kFullWarp, after, 1);
  if (lane > 0) before += previous;
  upto[0] = before + a;
  upto[1] = before + a + b;
  return all;
}

// One part. The first of entries 0..n-1 for which its thread says so; n - 1 when none.
__device__ inline int first_entry(Shared& s, int n, bool first, bool second) {
  const int at = 2 * threadIdx.x;
  if (threadIdx.x == 0) s.crossing = n - 1;
  __syncthreads();
  if (first && at < n) {
    atomicMin(&s.crossing, at);
  } else if (second && at + 1 < n) {
    atomicMin(&s.crossing, at + 1);
  }
  __syncthreads();
  return s.crossing;
}

// The key of the last entry that belongs to the best that reach the bound's goal.
template <Weigh kWeigh, class Visit, class Order>
__device__ uint64_t last_key(Shared& s, int& turn, const Visit& visit, const Order& order, int bits,
                             Bound bound) {
  const int bin = bound.bin, depth = order.depth(bin);
  float better = 0.f;
  int n = gather(s, turn, visit, order, [&](const Entry& e) {
    const int here = order.bin(e);
    if (kWeigh == Weigh::kMass && here < bin) better += mass_of(e.spread);
    return here == bin;
  });
  // One word only found the bin: this is exact.
  if (kWeigh == Weigh::kMass) bound.before = sum_of_parts(s, turn, static_cast<double>(better));
  if (n > kListMax) {
    uint64_t highest = 0, inverse = 0;  // of the bin; the largest inverse is the lowest key
    visit([&](const Entry& e) {
      if (order.bin(e) != bin) return;
      const uint64_t k = order.key(e);
      highest = k > highest ? k : highest;
      inverse = ~k > inverse ? ~k : inverse;
    });
    highest = max_of_parts(s, turn, highest);
    uint64_t lowest = ~max_of_parts(s, turn, inverse);
    while (n > kListMax) {  // each round narrows the range by 2^11; keys differ
      const int shift = max(0, 64 - __clzll(static_cast<long long>(highest - lowest)) - 11);
      const ByRange<Order> range = {order, highest, lowest, shift, depth};
      const Bound next = locate<kWeigh>(s, visit, range, bits, bound.before, bound.goal);
      if (next.found == 0) return lowest;  // by rounding: all of them
      bound = next;
      highest -= static_cast<uint64_t>(bound.bin) << shift;
      const uint64_t step = (uint64_t{1} << shift) - 1;
      lowest = highest - lowest > step ? highest - step : lowest;
      n = gather(s, turn, visit, order, [&](const Entry& e) {
        const uint64_t k = order.key(e);
        return k <= highest && k >= lowest;
      });
    }
  }
  uint64_t last = 0;
  if (part_rank() == 0) {
    sort_list(s, n);
    int at;
    if constexpr (kWeigh == Weigh::kCount) {
      at = min(n, static_cast<int>(bound.goal - bound.before)) - 1;
    } else {
      double upto[2];
      list_prefix(s, n, upto);
      at = first_entry(s, n, bound.before + upto[0] >= bound.goal,
                       bound.before + upto[1] >= bound.goal);
    }
    last = s.keys[max(at, 0)];
  }
  return show(s, turn, last)[0];
}

}  // namespace inferd::cuda::sampler
