#include <math_constants.h>

#include "attention_decode.h"
#include "attention_tile.cuh"

namespace inferd::cuda {
namespace {

constexpr int kMinShareTiles = 16;  // a smaller share costs more in merging than it saves
constexpr int kSharesPerSm = 2;
constexpr int kMergeUnroll = 8;
constexpr int kOnChipBytes = 96 * 1024;  // the ring of a block, so that sm_89 holds one, sm_90 two

template <typename S, int kHeadDim>
struct Config {
  static constexpr int kStageBytes = 2 * KvTile<S, kHeadDim>::kBytes;
  static constexpr int kWarps = kStageBytes > 8192 ? 2 : 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kFit = kOnChipBytes / (kWarps * kStageBytes);
  static constexpr int kStages = kFit < 4 ? kFit : 4;
  static constexpr int kRingBytes = kWarps * kStages * kStageBytes;
  static constexpr int kPitch = kHeadDim + 8;  // floats of a row of the merge buffer
  static_assert(kStages >= 2);
  static_assert(kWarps * 16 * kPitch * 4 <= kRingBytes);
};

struct Args {
  const void *q, *k, *v;
  void* out;
  int64_t q_stride, out_stride;
  const float *k_scale, *v_scale;
  const int32_t *tables, *tokens, *slots, *positions;
  int32_t* tickets;      // [rows, kv_heads], zero between launches
  float2* partial_sums;  // [ctas, kv_heads, group]: maximum and denominator
  float* partial_out;    // [ctas, kv_heads, group, head_dim]
  Divisor block_size;
  int32_t rows, group, max_blocks, window, scale_stride;
  float scale_log2;
  bool is_bf16;
};

// What one block works on: tiles [tile_begin, tile_end) of a row, one of `shares` of that row.
struct Share {
  int32_t row, index, shares, position;
  int32_t first;  // first key of the window
  int32_t tile_begin, tile_end;
};

__device__ inline int32_t first_key(int32_t position, int32_t window) {
  return window > 0 ? max(0, position + 1 - window) : 0;
}
__device__ inline int32_t count_tiles(int32_t position, int32_t window) {
  if (position < 0) return 0;
  return position / kTileTokens + 1 - first_key(position, window) / kTileTokens;
}
__device__ inline int32_t count_shares(int32_t tiles, int32_t share_tiles) {
  return tiles == 0 ? 0 : max(1, (tiles + share_tiles / 2) / share_tiles);
}

// Cuts all rows into shares of about equal length and finds the one of block.y; false if there is
// none. Every warp computes the same: no barrier, and the second pass hits L1.
__device__ inline bool find_share(const Args& p, int lane, Share& share) {
  const int32_t blocks = gridDim.y;
  int32_t target = blockIdx.y;
  if (blocks == p.rows) {
    share = {target, 0, 1, p.positions[target], 0, 0, 0};
    if (share.position < 0) return false;
  } else {
    int32_t total = 0;
    for (int32_t base = 0; base < p.rows; base += kWarp) {
      const int32_t row = base + lane;
      const int32_t tiles = row < p.rows ? count_tiles(p.positions[row], p.window) : 0;
      total += __reduce_add_sync(kFullWarp, tiles);
    }
    const int32_t spare = blocks - p.rows;
    const int32_t share_tiles = max(kMinShareTiles, (total + spare - 1) / spare);
    bool found = false;
    for (int32_t base = 0; base < p.rows; base += kWarp) {
      const int32_t row = base + lane;
      const int32_t position = row < p.rows ? p.positions[row] : -1;
      const int32_t shares = count_shares(count_tiles(position, p.window), share_tiles);
      int32_t until = shares;  // shares of rows base .. row
#pragma unroll
      for (int step = 1; step < kWarp; step *= 2) {
        const int32_t below = __shfl_up_sync(kFullWarp, until, step);
        if (lane >= step) until += below;
      }
      const unsigned past = __ballot_sync(kFullWarp, until > target);
      if (past != 0) {
        const int at = __ffs(past) - 1;
        share.row = base + at;
        share.shares = __shfl_sync(kFullWarp, shares, at);
        share.index = target - (__shfl_sync(kFullWarp, until, at) - share.shares);
        share.position = __shfl_sync(kFullWarp, position, at);
        found = true;
        break;
      }
      target -= __shfl_sync(kFullWarp, until, kWarp - 1);
    }
    if (!found) return false;
  }
  share.first = first_key(share.position, p.window);
  const int32_t start = share.first / kTileTokens;
  const int64_t tiles = count_tiles(share.position, p.window);
  share.tile_begin = start + static_cast<int32_t>(tiles * share.index / share.shares);
  share.tile_end = start + static_cast<int32_t>(tiles * (share.index + 1) / share.shares);
  return true;
}

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

// The last block of a row and kv head adds up the shares, in their order whichever came last.
template <typename S, int kHeadDim>
__device__ void merge_shares(const Args& p, const Share& share, int64_t out_at, float v_scale,
                             float* scratch) {
  constexpr int kThreads = Config<S, kHeadDim>::kThreads, kQuads = kHeadDim / 4;
  const int kv_heads = gridDim.x, kv_head = blockIdx.x, group = p.group, shares = share.shares;
  const int64_t slot = static_cast<int64_t>(blockIdx.y - share.index) * kv_heads + kv_head;
  const int64_t pitch = static_cast<int64_t>(kv_heads) * group;  // from a share to the next
  const float2* sums = p.partial_sums + slot * group;
  const float4* partial = reinterpret_cast<const float4*>(p.partial_out) + slot * group * kQuads;
  float2* seen = reinterpret_cast<float2*>(scratch);  // [shares][group]
  float* factors = scratch;                           // every other float of it, after the barrier
  for (int i = threadIdx.x; i < shares * group; i += kThreads) {
    seen[i] = __ldcg(sums + i / group * pitch + i % group);
  }
  __syncthreads();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int h = warp; h < group; h += kThreads / kWarp) {
    float top = -CUDART_INF_F, total = 0.f;
    for (int s = lane; s < shares; s += kWarp) top = fmaxf(top, seen[s * group + h].x);
    top = warp_max(top);
    for (int s = lane; s < shares; s += kWarp) {
      const float factor = fast_exp2((seen[s * group + h].x - top) * p.scale_log2);
      factors[(s * group + h) * 2] = factor;
      total += factor * seen[s * group + h].y;
    }
    const float scale = v_scale / warp_sum(total);
    for (int s = lane; s < shares; s += kWarp) factors[(s * group + h) * 2] *= scale;
  }
  __syncthreads();
  // Threads beyond one a column take every parts-th share; their sums meet in shared memory.
  const int columns = group * kQuads;
  const int parts = max(1, kThreads / columns);
  float4* meet = reinterpret_cast<float4*>(scratch + (shares * group * 2 + 3) / 4 * 4);
  for (int first = 0; first < columns; first += kThreads) {
    const int column = first + threadIdx.x % min(columns, kThreads);
    const int part = threadIdx.x / min(columns, kThreads);
    float4 sum = {0.f, 0.f, 0.f, 0.f};
    if (column < columns && part < parts) {
      const float4* from = partial + column;
      const float* factor = factors + column / kQuads * 2;
      int s = part;
      for (; s + (kMergeUnroll - 1) * parts < shares; s += kMergeUnroll * parts) {
        float4 x[kMergeUnroll];
#pragma unroll
        for (int j = 0; j < kMergeUnroll; ++j) {
          x[j] = __ldcg(from + (s + j * parts) * pitch * kQuads);
        }
#pragma unroll
        for (int j = 0; j < kMergeUnroll; ++j) {
          sum = scaled_sum(sum, factor[(s + j * parts) * group * 2], x[j]);
        }
      }
      for (; s < shares; s += parts) {
        sum = scaled_sum(sum, factor[s * group * 2], __ldcg(from + s * pitch * kQuads));
      }
    }
    if (parts > 1) {
      meet[threadIdx.x] = sum;
      __syncthreads();
      for (int j = 1; j < parts && part == 0; ++j) {
        sum = scaled_sum(sum, 1.f, meet[j * columns + column]);
      }
    }
    if (column < columns && part == 0) store_out<S>(p, out_at + column * 4, sum);
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
  Share share;
  if (!find_share(p, lane, share)) return;
  const KvRange range = {p.tables + static_cast<int64_t>(p.slots[share.row]) * p.max_blocks,
                         p.block_size,
                         kv_head,
                         kv_heads,
                         share.first,
                         share.position + 1};

  uint8_t* ring = ring_bytes + warp * C::kStages * C::kStageBytes;
  const int32_t end = share.tile_end;
  auto block_of = [&](int32_t tile) { return tile < end ? range.block(tile, lane) : 0; };
  auto issue = [&](int stage, int32_t tile, int32_t block) {
    if (tile < end) {
      uint8_t* at = ring + stage * C::kStageBytes;
      Tile::template copy<false>(at, p.k, range, tile, block, lane);
      Tile::template copy<true>(at + Tile::kBytes, p.v, range, tile, block, lane);
    }
    copy_commit();
  };
  int32_t tile = share.tile_begin + warp;
  int32_t ahead[C::kStages];
#pragma unroll
  for (int i = 0; i < C::kStages; ++i) ahead[i] = block_of(tile + i * C::kWarps);
#pragma unroll
  for (int i = 0; i < C::kStages - 1; ++i) issue(i, tile + i * C::kWarps, ahead[i]);
  int32_t next_block = ahead[C::kStages - 1];

  const int64_t token = p.tokens != nullptr ? p.tokens[share.row] : share.row;
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
  for (int stage = 0; tile < end; tile += C::kWarps) {
    issue(stage == 0 ? C::kStages - 1 : stage - 1, tile + (C::kStages - 1) * C::kWarps, next_block);
    next_block = block_of(tile + C::kStages * C::kWarps);
    copy_wait<C::kStages - 1>();
    __syncwarp();
    const uint8_t* at = ring + stage * C::kStageBytes;
    stage = stage + 1 == C::kStages ? 0 : stage + 1;
    float s[2][4] = {};
    Tile::template scores<kRows>(s, q, at, lane);
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
    __syncwarp();  // the stage is refilled in the next turn
  }
  copy_wait<0>();
  __syncthreads();

  // Merge of the warps.
  float* warp_out = reinterpret_cast<float*>(ring_bytes);  // [warp][head][kPitch]
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
    float* dst = warp_out + (warp * kRows + head) * C::kPitch;
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
  __syncthreads();
  constexpr int kQuads = kHeadDim / 4;
  const int64_t out_at = token * p.out_stride + static_cast<int64_t>(kv_head) * group * kHeadDim;
  const int64_t slot = (static_cast<int64_t>(blockIdx.y) * kv_heads + kv_head) * group;
  for (int i = threadIdx.x; i < group * kQuads; i += C::kThreads) {
    const int head = i / kQuads;
    float best = -CUDART_INF_F, sum = 0.f;
#pragma unroll
    for (int w = 0; w < C::kWarps; ++w) best = fmaxf(best, warp_top[w][head]);
    float4 x = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int w = 0; w < C::kWarps; ++w) {
      const float factor = fast_exp2((warp_top[w][head] - best) * scale_log2);
      const float* src = warp_out + (w * kRows + head) * C::kPitch + i % kQuads * 4;
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
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* ticket = p.tickets + static_cast<int64_t>(share.row) * kv_heads + kv_head;
    __threadfence();
    is_last = atomicAdd(ticket, 1) == share.shares - 1;
    if (is_last) *ticket = 0;
    __threadfence();
  }
  __syncthreads();
  if (is_last) {
    merge_shares<S, kHeadDim>(p, share, out_at, v_scale, reinterpret_cast<float*>(ring_bytes));
  }
}

template <typename S, int kHeadDim, int kRows>
cudaError_t launch(const Args& args, dim3 grid, cudaStream_t stream) {
  using C = Config<S, kHeadDim>;
  const auto kernel = decode_attention_kernel<S, kHeadDim, kRows>;
  // A row has at most one share more than there are spare blocks: room for a merge of that many.
  const size_t shares = grid.y - args.rows + 1;
  const size_t merge_bytes = shares * args.group * sizeof(float2) + (C::kThreads + 1) * 16;
  const size_t bytes = merge_bytes > C::kRingBytes ? merge_bytes : C::kRingBytes;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (status != cudaSuccess) return status;
  kernel<<<grid, C::kThreads, bytes, stream>>>(args);
  return cudaGetLastError();
}

template <typename S, int kHeadDim>
cudaError_t choose_rows(const Args& args, dim3 grid, cudaStream_t stream) {
  return args.group <= 8 ? launch<S, kHeadDim, 8>(args, grid, stream)
                         : launch<S, kHeadDim, 16>(args, grid, stream);
}

template <typename S>
cudaError_t choose_head_dim(int32_t head_dim, const Args& args, dim3 grid, cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return choose_rows<S, 64>(args, grid, stream);
    case 96:
      return choose_rows<S, 96>(args, grid, stream);
    case 128:
      return choose_rows<S, 128>(args, grid, stream);
    case 256:
      return choose_rows<S, 256>(args, grid, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

int32_t spare_ctas(int32_t kv_heads, int32_t sm_count) {
  return (kSharesPerSm * sm_count + kv_heads - 1) / kv_heads;
}

}  // namespace

int32_t decode_attention_ctas(int32_t rows, int32_t kv_heads, int32_t max_context,
                              int32_t sm_count) {
  // A row of t tiles never becomes more than max(1, t / kMinShareTiles + 1/2) shares.
  const int64_t tiles = (static_cast<int64_t>(max_context) + kTileTokens - 1) / kTileTokens;
  const int64_t useful = rows * ((tiles + kMinShareTiles / 2) / kMinShareTiles - 1);
  const int64_t spare = spare_ctas(kv_heads, sm_count);
  return rows + static_cast<int32_t>(useful < 0 ? 0 : useful < spare ? useful : spare);
}

size_t decode_attention_partial_bytes(int32_t max_rows, int32_t heads, int32_t kv_heads,
                                      int32_t head_dim, int32_t sm_count) {
  const size_t ctas = static_cast<size_t>(max_rows) + spare_ctas(kv_heads, sm_count);
  return ctas * heads * (head_dim + 2) * sizeof(float);
}

cudaError_t decode_attention(Half type, const DecodeAttentionParams& params, cudaStream_t stream) {
  const PagedKv& kv = params.kv;
  if (params.rows < 0 || params.ctas < params.rows || kv.kv_heads <= 0 || kv.block_size <= 0 ||
      params.heads % kv.kv_heads != 0 || params.heads / kv.kv_heads > 16 || params.heads <= 0 ||
      params.ctas > 65535 || params.window < 0 || params.q_stride % 2 != 0 ||
      params.out_stride % 4 != 0) {
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
      .tokens = params.tokens,
      .slots = params.slots,
      .positions = params.positions,
      .tickets = params.tickets,
      .partial_sums = sums,
      .partial_out = reinterpret_cast<float*>(sums + (slots + 1) / 2 * 2),
      .block_size = Divisor::of(kv.block_size),
      .rows = params.rows,
      .group = params.heads / kv.kv_heads,
      .max_blocks = kv.max_blocks,
      .window = params.window,
      .scale_stride = kv.scale_stride,
      .scale_log2 = params.scale * 1.44269504088896f,
      .is_bf16 = type == Half::kBF16,
  };
  const dim3 grid(kv.kv_heads, params.ctas);
  switch (kv.type) {
    case KvType::kFloat8:
      return choose_head_dim<Float8>(kv.head_dim, args, grid, stream);
    case KvType::kInt8:
      return choose_head_dim<Int8>(kv.head_dim, args, grid, stream);
    case KvType::kActivation:
      return type == Half::kBF16 ? choose_head_dim<__nv_bfloat16>(kv.head_dim, args, grid, stream)
                                 : choose_head_dim<__half>(kv.head_dim, args, grid, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace inferd::cuda
