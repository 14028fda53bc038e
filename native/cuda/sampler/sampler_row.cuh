// A part of a row of logits: loading, keys, the best entry, and the edits that come before a draw.
//
// Kept logits are clean: NaN is -inf, +inf the largest float, -0 is +0. A key orders entries by
// logit, then by lower id; all keys of a row differ.
#pragma once
#include <cfloat>

#include "cuda/sampler/sampler.h"
#include "cuda/sampler/sampler_parts.cuh"

namespace inferd::cuda::sampler {

constexpr float kLog2e = 1.4426950408889634f;
constexpr int kSliceAlign = 128;

__host__ __device__ inline int32_t slice_length(int32_t vocab, int32_t parts) {
  const int32_t even = (vocab + parts - 1) / parts;
  return (even + kSliceAlign - 1) / kSliceAlign * kSliceAlign;
}

// The row samples behind a draft that there is not.
__device__ inline bool drafted_away(const SampleParams& p, int row, int32_t slot) {
  const int32_t offset = p.samples[row].offset;
  return offset > 0 && offset > p.slots.num_drafts[slot];
}

struct Slice {
  float* z;  // z[i] is the logit of id begin + i; 16-byte aligned
  int32_t begin, count;
  int32_t padded;  // count rounded up to 4; what lies between is -inf

  __device__ bool holds(int32_t id) const { return id >= begin && id < begin + count; }
};

__device__ inline float minus_inf() { return __int_as_float(0xff800000); }
__device__ inline float clean(float z) { return fminf(fmaxf(z, minus_inf()), FLT_MAX) + 0.f; }

__device__ inline uint64_t make_key(float z, uint32_t id) {
  const uint32_t bits = __float_as_uint(z);
  const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - id);
}
__device__ inline float logit_of(uint64_t key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}
__device__ inline int32_t id_of(uint64_t key) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key));
}

// body(i, logit) for the entries of this part that the thread owns, padding included.
template <class Body>
__device__ void each(const Slice& slice, const Body& body) {
  for (int i = threadIdx.x * 4; i < slice.padded; i += kThreads * 4) {
    const float4 v = *reinterpret_cast<const float4*>(slice.z + i);
    body(i, v.x);
    body(i + 1, v.y);
    body(i + 2, v.z);
    body(i + 3, v.w);
  }
}

// The best key of what a thread passes, ids ascending.
struct Best {
  float z = minus_inf();
  int32_t id = -1;

  __device__ void take(float value, int32_t at) {
    if (value > z || id < 0) {
      z = value;
      id = at;
    }
  }
  __device__ uint64_t key() const { return id < 0 ? 0 : make_key(z, static_cast<uint32_t>(id)); }
};

// Copies the part's logits of `row` to slice.z, clean. Returns the thread's best key. A barrier
// must follow before other threads read the slice.
__device__ inline uint64_t load_slice(const Slice& slice, const float* row) {
  constexpr int kUnroll = 8;
  const float* from = row + slice.begin;
  const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
  Best best;
  for (int start = threadIdx.x * 4; start < slice.padded; start += kThreads * 4 * kUnroll) {
    float4 v[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int i = start + j * kThreads * 4;
      if (aligned && i + 4 <= slice.count) {
        v[j] = __ldcg(reinterpret_cast<const float4*>(from + i));
      } else {
        v[j].x = i < slice.count ? __ldcg(from + i) : minus_inf();
        v[j].y = i + 1 < slice.count ? __ldcg(from + i + 1) : minus_inf();
        v[j].z = i + 2 < slice.count ? __ldcg(from + i + 2) : minus_inf();
        v[j].w = i + 3 < slice.count ? __ldcg(from + i + 3) : minus_inf();
      }
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int i = start + j * kThreads * 4;
      if (i >= slice.padded) break;
      const float4 c = {clean(v[j].x), clean(v[j].y), clean(v[j].z), clean(v[j].w)};
      *reinterpret_cast<float4*>(slice.z + i) = c;
      const int32_t id = slice.begin + i;
      best.take(c.x, id);
      best.take(c.y, id + 1);
      best.take(c.z, id + 2);
      best.take(c.w, id + 3);
    }
  }
  return best.key();
}

// Again after edits, which can leave the range of floats.
__device__ inline uint64_t clean_slice(const Slice& slice) {
  Best best;
  for (int i = threadIdx.x * 4; i < slice.padded; i += kThreads * 4) {
    float4& at = *reinterpret_cast<float4*>(slice.z + i);
    const float4 v = at, c = {clean(v.x), clean(v.y), clean(v.z), clean(v.w)};
    at = c;
    const int32_t id = slice.begin + i;
    best.take(c.x, id);
    best.take(c.y, id + 1);
    best.take(c.z, id + 2);
    best.take(c.w, id + 3);
  }
  return best.key();
}

// What changes logits before a draw. Lists are device memory of the slot.
struct Edits {
  const int32_t* masked_ids;
  const int32_t* bias_ids;
  const float* bias_values;
  const int32_t* history;
  int32_t num_masked, num_bias, length, prompt_len;
  float repetition_penalty, frequency_penalty, presence_penalty;
  const uint32_t* mask;  // of the grammar, a bit a token; or null

  __device__ bool penalties() const {
    return repetition_penalty != 1.f || frequency_penalty != 0.f || presence_penalty != 0.f;
  }
  __device__ bool any() const {
    return num_masked > 0 || num_bias > 0 || penalties() || mask != nullptr;
  }
};

// Counts the history in ranges of ids that fit in the bins, and changes each id that occurs.
__device__ inline void apply_penalties(Shared& s, const Slice& slice, const Edits& e) {
  constexpr uint32_t kSeen = 1u << 30;  // anywhere; the bits below count places in the output
  constexpr int kRange = 2 * kBins, kHeld = 8;
  uint4* wide = reinterpret_cast<uint4*>(s.bins);
  int32_t held[kHeld];  // the first kHeld * kThreads tokens are read once
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = threadIdx.x + j * kThreads;
    held[j] = i < e.length ? __ldcg(e.history + i) : -1;
  }
  for (int start = 0; start < slice.count; start += kRange) {
    for (int i = threadIdx.x; i < kRange / 4; i += kThreads) wide[i] = uint4{0, 0, 0, 0};
    __syncthreads();
    const uint32_t first = static_cast<uint32_t>(slice.begin + start);
    const auto count = [&](int i, int32_t id) {
      const uint32_t at = static_cast<uint32_t>(id) - first;
      if (id < 0 || at >= kRange) return;
      if (i >= e.prompt_len) {
        atomicAdd(s.bins + at, 1u);
      } else {
        atomicOr(s.bins + at, kSeen);
      }
    };
#pragma unroll
    for (int j = 0; j < kHeld; ++j) count(threadIdx.x + j * kThreads, held[j]);
    for (int i = threadIdx.x + kHeld * kThreads; i < e.length; i += kThreads) {
      count(i, __ldcg(e.history + i));
    }
    __syncthreads();
    const auto change = [&](int at, uint32_t seen) {
      if (seen == 0 || start + at >= slice.count) return;
      const uint32_t outputs = seen & (kSeen - 1);
      float z = slice.z[start + at];
      if (e.repetition_penalty != 1.f) {
        z = z > 0.f ? __fdiv_rn(z, e.repetition_penalty) : z * e.repetition_penalty;
      }
      z = __fsub_rn(z, __fmul_rn(e.frequency_penalty, static_cast<float>(outputs)));
      if (outputs > 0) z = __fsub_rn(z, e.presence_penalty);
      slice.z[start + at] = z;
    };
    for (int i = threadIdx.x; i < kRange / 4; i += kThreads) {
      const uint4 seen = wide[i];
      if ((seen.x | seen.y | seen.z | seen.w) == 0) continue;
      change(i * 4, seen.x);
      change(i * 4 + 1, seen.y);
      change(i * 4 + 2, seen.z);
      change(i * 4 + 3, seen.w);
    }
    __syncthreads();
  }
}

// In pieces that fit in the list. Entries of one id add up in their order.
__device__ inline void apply_bias(Shared& s, const Slice& slice, const Edits& e) {
  uint2* bias = reinterpret_cast<uint2*>(s.keys);  // id, value
  for (int start = 0; start < e.num_bias; start += kListMax) {
    const int here = min(e.num_bias - start, kListMax);
    for (int i = threadIdx.x; i < here; i += kThreads) {
      bias[i] = {static_cast<uint32_t>(__ldcg(e.bias_ids + start + i)),
                 __float_as_uint(__ldcg(e.bias_values + start + i))};
    }
    __syncthreads();
    for (int i = threadIdx.x; i < here; i += kThreads) {
      const uint32_t id = bias[i].x;
      if (!slice.holds(static_cast<int32_t>(id))) continue;
      bool first = true;  // the first entry of an id adds all of them
      for (int j = 0; j < i; ++j) first = first && bias[j].x != id;
      if (!first) continue;
      float& z = slice.z[static_cast<int32_t>(id) - slice.begin];
      for (int j = i; j < here; ++j) {
        if (bias[j].x == id) z += __uint_as_float(bias[j].y);
      }
    }
    __syncthreads();
  }
}

// Last, so that nothing raises what the grammar forbids. A part begins with a word of the mask.
__device__ inline void apply_mask(const Slice& slice, const uint32_t* mask) {
  static_assert(kSliceAlign % 32 == 0);
  for (int i = threadIdx.x; i < slice.count; i += kThreads) {
    const uint32_t word = __ldcg(mask + (slice.begin + i) / 32);
    if ((word >> (i % 32) & 1u) == 0) slice.z[i] = minus_inf();
  }
  __syncthreads();
}

// Mask, bias, penalties, grammar, in this order. Returns the thread's best key of the result.
__device__ inline uint64_t edit_slice(Shared& s, const Slice& slice, const Edits& e) {
  for (int i = threadIdx.x; i < e.num_masked; i += kThreads) {
    const int32_t id = __ldcg(e.masked_ids + i);
    if (slice.holds(id)) slice.z[id - slice.begin] = minus_inf();
  }
  __syncthreads();
  apply_bias(s, slice, e);
  if (e.penalties()) apply_penalties(s, slice, e);
  if (e.mask != nullptr) apply_mask(slice, e.mask);
  return clean_slice(slice);
}

// Sum over all parts of exp(logit - max).
__device__ inline double exp_total(Shared& s, int& turn, const Slice& slice, float max) {
  float sum = 0.f;
  each(slice, [&](int, float z) { sum += fast_exp2((z - max) * kLog2e); });
  return sum_of_parts(s, turn, static_cast<double>(sum));
}

}  // namespace inferd::cuda::sampler
