// How the shares of a row become its output: see attention_decode.cu. Device code of
// attention_decode_kernel.cuh alone.
#pragma once
#include <math_constants.h>

#include "cuda/attention/attention_decode_args.cuh"

namespace inferd::cuda {

constexpr int kMergeUnroll = 8;

__device__ inline float4 scaled_sum(float4 sum, float factor, float4 x) {
  return {fmaf(factor, x.x, sum.x), fmaf(factor, x.y, sum.y), fmaf(factor, x.z, sum.z),
          fmaf(factor, x.w, sum.w)};
}

template <typename S>
__device__ inline void store_out(const DecodeArgs& p, int64_t at, float4 x) {
  uint16_t* out = static_cast<uint16_t*>(p.out) + at;
  *reinterpret_cast<uint2*>(out) = {pack_output<S>(x.x, x.y, p.is_bf16),
                                    pack_output<S>(x.z, x.w, p.is_bf16)};
}

// One more share of this row and kv head is done: true for the last, which then sees all of them.
__device__ inline bool take_ticket(int32_t* ticket, int32_t shares) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(ticket)
                 : "memory");
    is_last = before == shares - 1;
    if (is_last) *ticket = 0;
  }
  __syncthreads();
  return is_last;
}

// The last block of a row and kv head adds up the shares, in their order whichever came last.
// `block` is the plan's number of the share at hand.
template <typename S, int kHeadDim>
__device__ void merge_shares(const DecodeArgs& p, const DecodeShare& share, int32_t block,
                             int64_t out_at, float* scratch) {
  constexpr int kThreads = DecodeConfig<S, kHeadDim>::kThreads, kQuads = kHeadDim / 4;
  const int kv_heads = gridDim.x, kv_head = blockIdx.x, group = p.group, shares = share.shares;
  const int64_t slot = static_cast<int64_t>(block - share.index) * kv_heads + kv_head;
  const int pitch = kv_heads * group;  // from a share to the next
  const float2* sums = p.partial_sums + slot * group;
  const float4* partial = reinterpret_cast<const float4*>(p.partial_out) + slot * group * kQuads;
  float* inverse = scratch;       // [16] 1 / denominator
  float* factors = scratch + 16;  // [shares][group]
  float4* meet = reinterpret_cast<float4*>(factors + (shares * group + 3) / 4 * 4);  // [kThreads]

  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  auto find_factors = [&]() {
#pragma unroll 1
    for (int h = warp; h < group; h += kThreads / kWarp) {
      const float2* sum = sums + h;
      float top = -CUDART_INF_F, total = 0.f;
#pragma unroll 1
      for (int s = lane; s < shares; s += kWarp) top = fmaxf(top, __ldcg(sum + s * pitch).x);
      top = warp_max(top);
#pragma unroll 1
      for (int s = lane; s < shares; s += kWarp) {
        const float2 mine = __ldcg(sum + s * pitch);
        const float factor = fast_exp2((mine.x - top) * p.scale.log2);
        factors[s * group + h] = factor;
        total += factor * mine.y;
      }
      total = warp_sum(total);
      if (lane == 0) {
        inverse[h] = 1.f / sunk_total(total, top, p.scale, p.sinks, kv_head * group + h);
      }
    }
    __syncthreads();
  };
  // With fewer columns than threads, a column has `parts` threads, each with every parts-th share.
  const int columns = group * kQuads, width = min(columns, kThreads), parts = kThreads / width;
  const int part = threadIdx.x / width;
  float4 sum = {0.f, 0.f, 0.f, 0.f};
  int column = threadIdx.x % width, first = part;
#pragma unroll 1
  for (bool is_first = true;; is_first = false) {
    const bool mine = column < columns && part < parts;
    const int head = mine ? column / kQuads : 0;
    const float4* from = partial + first * pitch * kQuads + column;
    float4 x[kMergeUnroll];
#pragma unroll
    for (int j = 0; j < kMergeUnroll; ++j) {
      x[j] = mine && first + j * parts < shares ? __ldcg(from) : float4{0.f, 0.f, 0.f, 0.f};
      from += parts * pitch * kQuads;
    }
    if (is_first) find_factors();  // while the first loads are under way
#pragma unroll
    for (int j = 0; j < kMergeUnroll; ++j) {
      const int s = first + j * parts;
      if (mine && s < shares) sum = scaled_sum(sum, factors[s * group + head], x[j]);
    }
    first += kMergeUnroll * parts;
    if (first - part < shares) continue;
    if (parts > 1) {  // then there is one column a thread
      meet[threadIdx.x] = sum;
      __syncthreads();
#pragma unroll 1
      for (int j = 1; j < parts && part == 0; ++j) {
        sum = scaled_sum(sum, 1.f, meet[j * width + column]);
      }
    }
    if (mine && part == 0) {
      store_out<S>(p, out_at + column * 4, scaled_sum({0.f, 0.f, 0.f, 0.f}, inverse[head], sum));
    }
    sum = {0.f, 0.f, 0.f, 0.f};
    first = part;
    column += width;
    if (column - threadIdx.x % width >= columns) return;
  }
}

// As merge_shares, of a run, whose columns are many and shares few: a thread adds up several
// columns at once, a warp finds the factors of several query rows at once.
template <typename S, int kHeadDim>
__device__ void merge_run_shares(const DecodeArgs& p, const DecodeShare& share, int32_t block,
                                 int64_t out_at, float* scratch) {
  constexpr int kThreads = DecodeConfig<S, kHeadDim>::kThreads, kQuads = kHeadDim / 4;
  constexpr int kWarps = kThreads / kWarp, kRowsAtOnce = kMostQueryRows / kWarps;
  constexpr int kColumnsAtOnce = 2, kSharesAtOnce = 16;
  const int kv_heads = gridDim.x, kv_head = blockIdx.x, shares = share.shares;
  const int rows = p.group * share.run.tokens, columns = rows * kQuads;
  const int64_t slot = static_cast<int64_t>(block - share.index) * kv_heads + kv_head;
  const int pitch = kv_heads * p.most_rows;  // from a share to the next
  const float2* sums = p.partial_sums + slot * p.most_rows;
  const float4* partial =
      reinterpret_cast<const float4*>(p.partial_out) + slot * p.most_rows * kQuads;
  float* inverse = scratch;                   // [kMostQueryRows] 1 / denominator
  float* factors = scratch + kMostQueryRows;  // [shares][rows]

  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const auto find_factors = [&]() {
    float2 first[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int r = warp + i * kWarps;
      first[i] = r < rows && lane < shares ? __ldcg(sums + lane * pitch + r)
                                           : make_float2(-CUDART_INF_F, 0.f);
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int r = warp + i * kWarps;
      if (r >= rows) break;
      float top = first[i].x, total = 0.f;
#pragma unroll 1
      for (int s = lane + kWarp; s < shares; s += kWarp)
        top = fmaxf(top, __ldcg(sums + s * pitch + r).x);
      top = warp_max(top);
      float2 mine = first[i];
#pragma unroll 1
      for (int s = lane; s < shares; s += kWarp) {
        if (s != lane) mine = __ldcg(sums + s * pitch + r);
        const float factor = fast_exp2((mine.x - top) * p.scale.log2);
        factors[s * rows + r] = factor;
        total += factor * mine.y;
      }
      total = warp_sum(total);
      const int head = QueryRow::of<true>(p, r).head;
      if (lane == 0) {
        inverse[r] = 1.f / sunk_total(total, top, p.scale, p.sinks, kv_head * p.group + head);
      }
    }
    __syncthreads();
  };
  bool found = false;
#pragma unroll 1
  for (int base = threadIdx.x; base - static_cast<int>(threadIdx.x) < columns;
       base += kColumnsAtOnce * kThreads) {
    float4 sum[kColumnsAtOnce] = {};
#pragma unroll 1
    for (int begin = 0; begin < shares; begin += kSharesAtOnce) {
      float4 x[kColumnsAtOnce][kSharesAtOnce];
#pragma unroll
      for (int c = 0; c < kColumnsAtOnce; ++c) {
        const int column = base + c * kThreads;
#pragma unroll
        for (int j = 0; j < kSharesAtOnce; ++j) {
          x[c][j] = column < columns && begin + j < shares
                        ? __ldcg(partial + (begin + j) * pitch * kQuads + column)
                        : float4{0.f, 0.f, 0.f, 0.f};
        }
      }
      if (!found) find_factors();  // while the first loads are under way
      found = true;
#pragma unroll
      for (int c = 0; c < kColumnsAtOnce; ++c) {
        const int row = min((base + c * kThreads) / kQuads, rows - 1);
#pragma unroll
        for (int j = 0; j < kSharesAtOnce; ++j) {
          if (begin + j < shares)
            sum[c] = scaled_sum(sum[c], factors[(begin + j) * rows + row], x[c][j]);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kColumnsAtOnce; ++c) {
      const int column = base + c * kThreads, row = column / kQuads;
      if (column >= columns) continue;
      store_out<S>(p, out_at + out_offset<kHeadDim, true>(p, row) + column % kQuads * 4,
                   scaled_sum({0.f, 0.f, 0.f, 0.f}, inverse[row], sum[c]));
    }
  }
}

}  // namespace inferd::cuda
