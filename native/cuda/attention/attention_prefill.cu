// 1. out[token, head] = softmax(scale * q . K^T) V, causal, over all keys of the token's
//    sequence up to its own: earlier chunks, cached prefix and this chunk alike come from the
//    paged cache.
// 2. q [tokens, .. heads * head_dim] and out f16/bf16; caches as in paged_kv.h, of the same type,
//    e4m3, or int8 with a scale a row; tiles and the rest as in attention_prefill.h.
// 3. grid kv_heads x tiles, 8 warps. A tile's 128 rows are its tokens times the heads of the kv
//    head (row = token * group + head), so that a short chunk fills its rows and keys are read
//    once for the group; a warp owns 16 rows and visits all keys in turns of 64 (32 at head_dim
//    256).
// 4. Two stages of keys and values by cp.async: 64 KB (head_dim 128). q in registers; up to 222
//    registers, at head_dim 256 255 and up to 8 words spilled.
// 5. f32 scores and sums; probabilities rounded to the type of the mma; 8-bit caches widened
//    exactly to f16, and so is q. Relative error against float64: bf16 2.1e-3, f16 2.5e-4.
//    Deterministic.
// 6. head_dim 64, 96, 128, 256; 1 to 16 heads a kv head; any block size (multiples of 16 are
//    fast); sm_80 and later. Else cudaErrorInvalidValue.
// 7. 4 * head_dim * heads flops a (query, key) pair, bound by the mma. H200, 32/8 heads of 128,
//    bf16, causal, TFLOP/s: 128x128 67, 16x1024 203, 4x4096 260, 1x16384 275, 1x65536 295;
//    head_dim 64 at 16384: 230; 256: 257. There the Hopper kernel takes over for head_dim 64 and
//    128, but not for 8-bit caches, which stay here: e4m3 128x128 33, 16x1024 133, 1x16384 234;
//    int8 31, 102, 149.
// 8. FlashAttention-2 (Dao 2023); packed heads as in FlashAttention-3's pack_gqa.
// 9. Nothing else was tried: on the H200 this is the fallback.
#include <math_constants.h>

#include <algorithm>

#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/attention_tile.cuh"
#include "cuda/attention/score_scale.h"
#include "cuda/device/launch.cuh"

namespace inferd::cuda {
namespace {

constexpr int kTileRows = 128, kWarps = kTileRows / 16, kThreads = kWarps * kWarp, kStages = 2;

template <typename S, int kHeadDim>
struct Config {
  // 64 keys a turn; 32 where two stages of 64 would not fit the 99 KB of sm_89 or the registers.
  static constexpr int kKeyTiles = KvTile<S, kHeadDim>::kBytes > 4096 || kHeadDim > 128 ? 2 : 4;
  static constexpr int kKeys = kKeyTiles * kTileTokens;
  static constexpr int kStageBytes = 2 * kKeyTiles * KvTile<S, kHeadDim>::kBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
};

struct Args {
  const void *q, *k, *v;
  void* out;
  int64_t q_stride, out_stride;
  const int32_t* tables;
  const PrefillTile* tiles;
  const int32_t* tile_count;  // or null: there are as many as blocks
  Divisor block_size;
  uint32_t block_bytes;
  int32_t group, max_blocks, window;
  ScoreScale scale;
  const float* sinks;  // [heads], or null
  bool is_bf16;
};

template <typename S, int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    prefill_attention_kernel(const __grid_constant__ Args p) {
  using C = Config<S, kHeadDim>;
  using Tile = KvTile<S, kHeadDim>;
  using T = MmaType<S>;
  extern __shared__ __align__(128) uint8_t stages[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int kv_head = blockIdx.x, kv_heads = gridDim.x, group = p.group;
  wait_for_previous();
  if (p.tile_count != nullptr && static_cast<int32_t>(blockIdx.y) >= *p.tile_count) return;
  const PrefillTile tile = p.tiles[blockIdx.y];
  const int32_t end = tile.first_position + tile.count;
  const int32_t first = p.window > 0 ? max(0, tile.first_position + 1 - p.window) : 0;
  const KvRange range = {p.tables + static_cast<int64_t>(tile.slot) * p.max_blocks,
                         p.block_size,
                         p.block_bytes,
                         kv_head,
                         kv_heads,
                         first,
                         end};
  const int32_t turn_begin = first / C::kKeys, turn_end = (end + C::kKeys - 1) / C::kKeys;

  auto issue = [&](int32_t turn) {
    if (turn < turn_end) {
      uint8_t* stage = stages + (turn & 1) * C::kStageBytes;
      for (int job = warp; job < 2 * C::kKeyTiles; job += kWarps) {  // keys, then values
        const int32_t key_tile = turn * C::kKeyTiles + job % C::kKeyTiles;
        const int32_t block = *range.entry_of(key_tile * kTileTokens);
        uint8_t* dst = stage + job * Tile::kBytes;
        if (job < C::kKeyTiles) {
          Tile::template copy<false>(dst, p.k, range, key_tile, block, lane, copy16_async);
        } else {
          Tile::template copy<true>(dst, p.v, range, key_tile, block, lane, copy16_async);
        }
      }
    }
    copy_commit();
  };
  issue(turn_begin);

  // Row r of the tile: token r / group, head r % group.
  int32_t token[2], head[2], position[2];
  typename Tile::template Query<16> q;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = warp * 16 + g + h * 8;
    token[h] = row / group;
    head[h] = kv_head * group + row % group;
    position[h] = tile.first_position + token[h];
    const int64_t at = (tile.first_token + token[h]) * p.q_stride + head[h] * kHeadDim;
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        q[step][h * 2 + upper] =
            token[h] < tile.count
                ? load_query_pair<S>(p.q, at + Tile::q_dim(step, upper, t), p.is_bf16)
                : 0u;
      }
    }
  }
  const int32_t warp_first = tile.first_position + warp * 16 / group;
  const int32_t warp_last = tile.first_position + (warp * 16 + 15) / group;

  float o[Tile::kColumns][4] = {};
  ValueUnit unit;
  float top[2] = {-CUDART_INF_F, -CUDART_INF_F}, total[2] = {0.f, 0.f};  // of rows g and g + 8
  for (int32_t turn = turn_begin; turn < turn_end; ++turn) {
    issue(turn + 1);
    copy_wait<1>();
    __syncthreads();
    const uint8_t* stage = stages + (turn & 1) * C::kStageBytes;
    const int32_t key = turn * C::kKeys;
    float s[2 * C::kKeyTiles][4] = {};
#pragma unroll
    for (int j = 0; j < C::kKeyTiles; ++j) {
      Tile::template scores<16>(*reinterpret_cast<float(*)[2][4]>(&s[j * 2]), q,
                                stage + j * Tile::kBytes, lane);
      if constexpr (Tile::kScaled) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const float2 scale = Tile::scales(stage + j * Tile::kBytes, n, t);
#pragma unroll
          for (int e = 0; e < 4; ++e) s[j * 2 + n][e] *= e % 2 == 0 ? scale.x : scale.y;
        }
      }
    }
    if (p.scale.cap_log2 != 0.f) {
#pragma unroll
      for (int i = 0; i < 8 * C::kKeyTiles; ++i)
        s[i / 4][i % 4] = capped_score(s[i / 4][i % 4], p.scale.cap_log2);
    }
    if (key + C::kKeys > warp_first + 1 || (p.window > 0 && key <= warp_last - p.window)) {
#pragma unroll
      for (int i = 0; i < 8 * C::kKeyTiles; ++i) {
        const int32_t mine = key + i / 4 * 8 + t * 2 + i % 2, query = position[i / 2 % 2];
        if (mine > query || (p.window > 0 && mine <= query - p.window)) {
          s[i / 4][i % 4] = -CUDART_INF_F;
        }
      }
    }
    // The scale of a value of column n of key tile j, this lane's first (e = 0) or second.
    auto value_scale = [&](int j, int n, int e) {
      const int32_t mine = key + j * kTileTokens + n * 8 + t * 2 + e;
      const float2 pair = Tile::scales(stage + (C::kKeyTiles + j) * Tile::kBytes, n, t);
      return mine >= first && mine < end ? (e == 0 ? pair.x : pair.y) : 0.f;
    };
    float shrink = 1.f;
    if constexpr (Tile::kScaled) {
      float most = 0.f;
#pragma unroll
      for (int i = 0; i < 4 * C::kKeyTiles; ++i) {
        most = fmaxf(most, value_scale(i / 4, i / 2 % 2, i % 2));
      }
      shrink = unit.grow(most);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float best = top[h];
#pragma unroll
      for (int n = 0; n < 2 * C::kKeyTiles; ++n) {
        best = fmaxf(best, fmaxf(s[n][h * 2], s[n][h * 2 + 1]));
      }
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 1));
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 2));
      const float base = best == -CUDART_INF_F ? 0.f : best * p.scale.log2;  // no key seen so far
      const float keep = fast_exp2(top[h] * p.scale.log2 - base);
      top[h] = best;
      total[h] *= keep;
#pragma unroll
      for (int n = 0; n < 2 * C::kKeyTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][h * 2 + e];
          x = fast_exp2(fmaf(x, p.scale.log2, -base));
          total[h] += x;
        }
      }
#pragma unroll
      for (int n = 0; n < Tile::kColumns; ++n) {
        o[n][h * 2] *= keep * shrink;
        o[n][h * 2 + 1] *= keep * shrink;
      }
    }
#pragma unroll
    for (int j = 0; j < C::kKeyTiles; ++j) {
      if constexpr (Tile::kScaled) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          s[j * 2 + i / 4][i % 4] *= value_scale(j, i / 4, i % 2) * unit.inverse;
        }
      }
      const uint32_t a[4] = {pack2<T>(s[j * 2][0], s[j * 2][1]), pack2<T>(s[j * 2][2], s[j * 2][3]),
                             pack2<T>(s[j * 2 + 1][0], s[j * 2 + 1][1]),
                             pack2<T>(s[j * 2 + 1][2], s[j * 2 + 1][3])};
      Tile::accumulate(o, a, stage + (C::kKeyTiles + j) * Tile::kBytes, lane);
    }
    __syncthreads();  // the stage is refilled in the next turn
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    total[h] += __shfl_xor_sync(kFullWarp, total[h], 1);
    total[h] += __shfl_xor_sync(kFullWarp, total[h], 2);
    if (token[h] >= tile.count) continue;
    const float sunk = sunk_total(total[h], top[h], p.scale, p.sinks, head[h]);
    const float factor = (Tile::kScaled ? unit.value : 1.f) / sunk;
    uint16_t* out = static_cast<uint16_t*>(p.out) + (tile.first_token + token[h]) * p.out_stride +
                    head[h] * kHeadDim;
    Tile::store(out, o, h, factor, t, p.is_bf16);
  }
}

template <typename S, int kHeadDim>
cudaError_t launch_shape(const Args& args, dim3 grid, const Launch& launch) {
  constexpr int kBytes = Config<S, kHeadDim>::kSharedBytes;
  static_assert(kBytes <= 99 * 1024);
  return launch_kernel(prefill_attention_kernel<S, kHeadDim>, {grid, kThreads, kBytes}, launch,
                       args);
}

template <typename S>
cudaError_t choose_head_dim(int32_t head_dim, const Args& args, dim3 grid, const Launch& launch) {
  switch (head_dim) {
    case 64:
      return launch_shape<S, 64>(args, grid, launch);
    case 96:
      return launch_shape<S, 96>(args, grid, launch);
    case 128:
      return launch_shape<S, 128>(args, grid, launch);
    case 256:
      return launch_shape<S, 256>(args, grid, launch);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

int32_t prefill_tile_tokens(int32_t heads, int32_t kv_heads) {
  return kTileRows / (heads / kv_heads);
}

int32_t count_prefill_tiles(std::span<const PrefillTile> rows, int32_t tile_tokens) {
  int32_t tiles = 0;
  for (const PrefillTile& row : rows) tiles += (row.count + tile_tokens - 1) / tile_tokens;
  return tiles;
}

int32_t build_prefill_tiles(std::span<const PrefillTile> rows, int32_t tile_tokens,
                            std::span<PrefillTile> tiles) {
  int32_t n = 0;
  for (const PrefillTile& row : rows) {
    for (int32_t at = 0; at < row.count; at += tile_tokens) {
      tiles[n++] = {row.slot, row.first_token + at, std::min(tile_tokens, row.count - at),
                    row.first_position + at};
    }
  }
  std::sort(tiles.begin(), tiles.begin() + n, [](const PrefillTile& a, const PrefillTile& b) {
    const int32_t a_end = a.first_position + a.count, b_end = b.first_position + b.count;
    return a_end != b_end ? a_end > b_end : a.first_token < b.first_token;
  });
  return n;
}

cudaError_t prefill_attention(Half type, const PrefillAttentionParams& params,
                              const Launch& launch) {
  const PagedKv& kv = params.kv;
  if (params.num_tiles < 0 || params.num_tiles > 65535 || kv.kv_heads <= 0 || kv.block_size <= 0 ||
      params.heads <= 0 || params.heads % kv.kv_heads != 0 || params.heads / kv.kv_heads > 16 ||
      params.window < 0 || params.q_stride % 2 != 0 || params.out_stride % 2 != 0) {
    return cudaErrorInvalidValue;
  }
  if (params.num_tiles == 0) return cudaSuccess;
  const Args args = {
      .q = params.q,
      .k = kv.k,
      .v = kv.v,
      .out = params.out,
      .q_stride = params.q_stride,
      .out_stride = params.out_stride,
      .tables = kv.block_tables,
      .tiles = params.tiles,
      .tile_count = params.tile_count,
      .block_size = Divisor::of(kv.block_size),
      .block_bytes = static_cast<uint32_t>(kv.block_bytes),
      .group = params.heads / kv.kv_heads,
      .max_blocks = kv.max_blocks,
      .window = params.window,
      .scale = ScoreScale::of(params.scale, params.softcap, params.value_scale),
      .sinks = params.sinks,
      .is_bf16 = type == Half::kBF16,
  };
  const dim3 grid(kv.kv_heads, params.num_tiles);
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
