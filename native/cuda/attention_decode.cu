#include <math_constants.h>

#include "attention_decode.h"
#include "attention_tile.cuh"
#include "launch.cuh"

namespace inferd::cuda {
namespace {

constexpr int kMergeUnroll = 8;
constexpr int kOnChipBytes = 96 * 1024;  // the ring of a block, so that sm_89 holds one, sm_90 two

template <typename S, int kHeadDim>
struct Config {
  static constexpr int kStageBytes = 2 * KvTile<S, kHeadDim>::kBytes;
  static constexpr int kWarps = decode_attention_warps(kHeadDim, sizeof(S) == 1);
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kFit = kOnChipBytes / (kWarps * kStageBytes);
  static constexpr int kStages = kFit < 6 ? kFit : 6;
  static constexpr int kWarpBytes = kStages * kStageBytes;
  static constexpr int kRingBytes = kWarps * kWarpBytes;
  static constexpr int kPitch = kHeadDim + 8;  // floats of a row of the merge buffer
  static_assert(kStages >= 2);
  static_assert(16 * kPitch * 4 <= kWarpBytes);
};

struct Args {
  const void *q, *k, *v;
  void* out;
  int64_t q_stride, out_stride;
  const float *k_scale, *v_scale;
  const int32_t* tables;
  const DecodeShare* shares;  // [gridDim.y, kWarps]
  int32_t* tickets;           // [rows, kv_heads], zero between launches
  float2* partial_sums;       // [gridDim.y, kv_heads, group]: maximum and denominator
  float* partial_out;         // [gridDim.y, kv_heads, group, head_dim]
  Divisor block_size;
  int32_t rows, group, max_blocks, scale_stride;
  float scale_log2;
  bool is_bf16;
};

__device__ inline float4 scaled_sum(float4 sum, float factor, float4 x) {
  return {fmaf(factor, x.x, sum.x), fmaf(factor, x.y, sum.y), fmaf(factor, x.z, sum.z),
          fmaf(factor, x.w, sum.w)};
}

template <typename S>
__device__ inline void store_out(const Args& p, int64_t at, float4 x) {
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
template <typename S, int kHeadDim>
__device__ void merge_shares(const Args& p, const DecodeShare& share, int64_t out_at, float v_scale,
                             float* scratch) {
  constexpr int kThreads = Config<S, kHeadDim>::kThreads, kQuads = kHeadDim / 4;
  const int kv_heads = gridDim.x, kv_head = blockIdx.x, group = p.group, shares = share.shares;
  const int64_t slot = static_cast<int64_t>(blockIdx.y - share.index) * kv_heads + kv_head;
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
        const float factor = fast_exp2((mine.x - top) * p.scale_log2);
        factors[s * group + h] = factor;
        total += factor * mine.y;
      }
      total = warp_sum(total);
      if (lane == 0) inverse[h] = v_scale / total;
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
      if (mine && first + j * parts < shares) x[j] = __ldcg(from);
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

// kRows: 8 serves groups of up to 8 heads, whose query rows 8..15 are zero; 16 the larger ones.
template <typename S, int kHeadDim, int kRows>
__global__ void __launch_bounds__(Config<S, kHeadDim>::kThreads)
    decode_attention_kernel(const __grid_constant__ Args p) {
  using C = Config<S, kHeadDim>;
  using Tile = KvTile<S, kHeadDim>;
  using T = MmaType<S>;
  constexpr int kHalves = kRows / 8;
  extern __shared__ __align__(128) uint8_t ring_bytes[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int kv_head = blockIdx.x, kv_heads = gridDim.x, group = p.group;
  wait_for_previous();
  const DecodeShare share = p.shares[blockIdx.y * C::kWarps + warp];
  if (share.shares == 0) return;
  const bool team = share.team;  // the same for all warps of the block
  const KvRange range = {p.tables + static_cast<int64_t>(share.slot) * p.max_blocks,
                         p.block_size,
                         kv_head,
                         kv_heads,
                         share.first_key,
                         share.end_key};

  // This warp's tiles are first_tile + n * step for 0 <= n < count.
  const int32_t step = team ? C::kWarps : 1;
  const int32_t first_tile = share.tile_begin + (team ? warp : 0);
  const int32_t count = max(0, (share.tile_end - first_tile + step - 1) / step);
  uint8_t* ring = ring_bytes + warp * C::kWarpBytes;
  auto blocks_of = [&](int32_t n) {  // of tiles n .. n + 31, one a lane
    return range.block_of((first_tile + min(n + lane, count - 1) * step) * kTileTokens);
  };
  int32_t blocks = 0, next_blocks = count > 0 ? blocks_of(0) : 0;

  const int64_t token = share.token;
  typename Tile::template Query<kRows> q;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const int head = g + h * 8;
    const int64_t at = token * p.q_stride + (kv_head * group + head) * kHeadDim;
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        q[step][h * 2 + upper] =
            head < group ? load_query_pair<S>(p.q, at + Tile::q_dim(step, upper, t), p.is_bf16)
                         : 0u;
      }
    }
  }
  const float k_scale = p.k_scale != nullptr ? p.k_scale[kv_head * p.scale_stride] : 1.f;
  const float v_scale = p.v_scale != nullptr ? p.v_scale[kv_head * p.scale_stride] : 1.f;
  const float scale_log2 = p.scale_log2 * k_scale;

  float o[Tile::kColumns][4] = {};
  float top[2] = {-CUDART_INF_F, -CUDART_INF_F}, total[2] = {0.f, 0.f};  // of rows g and g + 8
  int stage = 0, fill_stage = 0;
  for (int32_t n = 1 - C::kStages; n < count; ++n) {  // the first turns only fill the ring
    const uint8_t* at = ring + stage * C::kStageBytes;
    float s[2][4] = {};
    if (n >= 0) {
      copy_wait<C::kStages - 2>();
      __syncwarp();  // all lanes' copies of this stage have landed, and none reads the one before
      Tile::template scores<kRows, kHeadDim <= 128 ? 2 : 1>(s, q, at, lane);
    }
    const int32_t fill = n + C::kStages - 1;
    if (fill < count) {
      if (fill % kWarp == 0) {
        blocks = next_blocks;
        if (fill + kWarp < count) next_blocks = blocks_of(fill + kWarp);
      }
      const int32_t tile = first_tile + fill * step;
      const int32_t block = __shfl_sync(kFullWarp, blocks, fill % kWarp);
      uint8_t* to = ring + fill_stage * C::kStageBytes;
      Tile::template copy<false>(to, p.k, range, tile, block, lane);
      Tile::template copy<true>(to + Tile::kBytes, p.v, range, tile, block, lane);
    }
    copy_commit();
    fill_stage = fill_stage + 1 == C::kStages ? 0 : fill_stage + 1;
    if (n < 0) continue;
    stage = stage + 1 == C::kStages ? 0 : stage + 1;
    const int32_t tile = first_tile + n * step;
    const int32_t key = tile * kTileTokens;
    if (key + kTileTokens > range.end || key < range.first) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int32_t mine = key + i / 4 * 8 + t * 2 + i % 2;
        if (mine >= range.end || mine < range.first) s[i / 4][i % 4] = -CUDART_INF_F;
      }
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float best = fmaxf(fmaxf(s[0][h * 2], s[0][h * 2 + 1]), fmaxf(s[1][h * 2], s[1][h * 2 + 1]));
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 1));
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 2));
      best = fmaxf(best, top[h]);  // finite: a tile of the range has a valid key
      const float keep = fast_exp2((top[h] - best) * scale_log2);
      top[h] = best;
      total[h] *= keep;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = s[i / 2][h * 2 + i % 2];
        x = fast_exp2((x - best) * scale_log2);
        total[h] += x;
      }
#pragma unroll
      for (int n = 0; n < Tile::kColumns; ++n) {
        o[n][h * 2] *= keep;
        o[n][h * 2 + 1] *= keep;
      }
    }
    const uint32_t a[4] = {
        pack2<T>(s[0][0], s[0][1]), kRows == 16 ? pack2<T>(s[0][2], s[0][3]) : 0u,
        pack2<T>(s[1][0], s[1][1]), kRows == 16 ? pack2<T>(s[1][2], s[1][3]) : 0u};
    Tile::accumulate(o, a, at + Tile::kBytes, lane);
  }
  let_next_start();  // what follows leaves the memory idle
  copy_wait<0>();
  __syncwarp();

  // Merge of a team's warps. Each leaves its sums in its own ring.
  __shared__ float warp_top[C::kWarps][kRows], warp_total[C::kWarps][kRows];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    total[h] += __shfl_xor_sync(kFullWarp, total[h], 1);
    total[h] += __shfl_xor_sync(kFullWarp, total[h], 2);
    const int head = g + h * 8;
    if (t == 0) {
      warp_top[warp][head] = top[h];
      warp_total[warp][head] = total[h];
    }
    float* dst = reinterpret_cast<float*>(ring) + head * C::kPitch;
#pragma unroll
    for (int n = 0; n < Tile::kColumns; ++n) {
      if constexpr (!Tile::kNarrow) {
        *reinterpret_cast<float2*>(dst + n * 8 + t * 2) = {o[n][h * 2], o[n][h * 2 + 1]};
      } else {
        dst[Tile::out_dim(n, t * 2)] = o[n][h * 2];
        dst[Tile::out_dim(n, t * 2 + 1)] = o[n][h * 2 + 1];
      }
    }
  }
  if (team) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  constexpr int kQuads = kHeadDim / 4;
  const int64_t out_at = token * p.out_stride + static_cast<int64_t>(kv_head) * group * kHeadDim;
  const int64_t slot = (static_cast<int64_t>(blockIdx.y) * kv_heads + kv_head) * group;
  const int first_warp = team ? 0 : warp, end_warp = team ? C::kWarps : warp + 1;
#pragma unroll 1
  for (int i = team ? threadIdx.x : lane; i < group * kQuads; i += step * kWarp) {
    const int head = i / kQuads;
    float best = -CUDART_INF_F, sum = 0.f;
#pragma unroll 1
    for (int w = first_warp; w < end_warp; ++w) best = fmaxf(best, warp_top[w][head]);
    float4 x = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 1
    for (int w = first_warp; w < end_warp; ++w) {
      const float factor = fast_exp2((warp_top[w][head] - best) * scale_log2);
      const float* src = reinterpret_cast<const float*>(ring_bytes + w * C::kWarpBytes) +
                         head * C::kPitch + i % kQuads * 4;
      x = scaled_sum(x, factor, *reinterpret_cast<const float4*>(src));
      sum += factor * warp_total[w][head];
    }
    if (share.shares == 1) {
      store_out<S>(p, out_at + i * 4, scaled_sum({0.f, 0.f, 0.f, 0.f}, v_scale / sum, x));
    } else {
      __stcg(reinterpret_cast<float4*>(p.partial_out) + slot * kQuads + i, x);
      if (i % kQuads == 0) __stcg(p.partial_sums + slot + head, make_float2(best * k_scale, sum));
    }
  }
  if (share.shares == 1) return;
  int32_t* ticket = p.tickets + static_cast<int64_t>(share.row) * kv_heads + kv_head;
  if (take_ticket(ticket, share.shares)) {
    merge_shares<S, kHeadDim>(p, share, out_at, v_scale, reinterpret_cast<float*>(ring_bytes));
  }
}

template <typename S, int kHeadDim, int kRows>
cudaError_t launch_rows(const Args& args, dim3 grid, const Launch& launch) {
  using C = Config<S, kHeadDim>;
  // A row has at most one share more than there are spare blocks: room for a merge of that many.
  const size_t shares = grid.y - args.rows + 1;
  const size_t merge_bytes = (shares * args.group + 16) * sizeof(float) + (C::kThreads + 1) * 16;
  const size_t bytes = merge_bytes > C::kRingBytes ? merge_bytes : C::kRingBytes;
  return launch_kernel(decode_attention_kernel<S, kHeadDim, kRows>, {grid, C::kThreads, bytes},
                       launch, args);
}

template <typename S, int kHeadDim>
cudaError_t choose_rows(const Args& args, dim3 grid, const Launch& launch) {
  return args.group <= 8 ? launch_rows<S, kHeadDim, 8>(args, grid, launch)
                         : launch_rows<S, kHeadDim, 16>(args, grid, launch);
}

template <typename S>
cudaError_t choose_head_dim(int32_t head_dim, const Args& args, dim3 grid, const Launch& launch) {
  switch (head_dim) {
    case 64:
      return choose_rows<S, 64>(args, grid, launch);
    case 96:
      return choose_rows<S, 96>(args, grid, launch);
    case 128:
      return choose_rows<S, 128>(args, grid, launch);
    case 256:
      return choose_rows<S, 256>(args, grid, launch);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t decode_attention(Half type, const DecodeAttentionParams& params, const Launch& launch) {
  const PagedKv& kv = params.kv;
  if (params.rows < 0 || params.ctas < params.rows || kv.kv_heads <= 0 || kv.block_size <= 0 ||
      params.heads % kv.kv_heads != 0 || params.heads / kv.kv_heads > 16 || params.heads <= 0 ||
      params.ctas > 65535 || params.q_stride % 2 != 0 || params.out_stride % 4 != 0) {
    return cudaErrorInvalidValue;
  }
  if (params.rows == 0) return cudaSuccess;
  float2* sums = static_cast<float2*>(params.partials);
  const int64_t slots = static_cast<int64_t>(params.ctas) * params.heads;
  const Args args = {
      .q = params.q,
      .k = kv.k,
      .v = kv.v,
      .out = params.out,
      .q_stride = params.q_stride,
      .out_stride = params.out_stride,
      .k_scale = kv.type == KvType::kActivation ? nullptr : kv.k_scale,
      .v_scale = kv.type == KvType::kActivation ? nullptr : kv.v_scale,
      .tables = kv.block_tables,
      .shares = params.shares,
      .tickets = params.tickets,
      .partial_sums = sums,
      .partial_out = reinterpret_cast<float*>(sums + (slots + 1) / 2 * 2),
      .block_size = Divisor::of(kv.block_size),
      .rows = params.rows,
      .group = params.heads / kv.kv_heads,
      .max_blocks = kv.max_blocks,
      .scale_stride = kv.scale_stride,
      .scale_log2 = params.scale * 1.44269504088896f,
      .is_bf16 = type == Half::kBF16,
  };
  const dim3 grid(kv.kv_heads, params.ctas);
  switch (kv.type) {
    case KvType::kFloat8:
      return choose_head_dim<Float8>(kv.head_dim, args, grid, launch);
    case KvType::kInt8:
      return choose_head_dim<Int8>(kv.head_dim, args, grid, launch);
    case KvType::kActivation:
      return type == Half::kBF16 ? choose_head_dim<__nv_bfloat16>(kv.head_dim, args, grid, launch)
                                 : choose_head_dim<__half>(kv.head_dim, args, grid, launch);
  }
  return cudaErrorInvalidValue;
}

}  // namespace inferd::cuda
