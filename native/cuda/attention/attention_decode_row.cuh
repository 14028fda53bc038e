// The online softmax of one row of the decode kernel, and its products: see attention_decode.cu.
// Device code of attention_decode_kernel.cuh alone.
#pragma once
#include <math_constants.h>

#include "cuda/attention/attention_decode_args.cuh"

namespace inferd::cuda {

// Query rows of one kv head, and what the keys so far make of them. Row g of a quad's lanes is
// h = 0, row g + 8 is h = 1. kRows: 8 serves up to 8 rows, query rows 8..15 are zero; 16 more of
// them. kRuns: rows are those of several tokens, each of which has an end of its own.
template <typename S, int kHeadDim, int kRows, bool kRuns>
struct RowSums {
  using Tile = KvTile<S, kHeadDim>;
  using T = MmaType<S>;
  static constexpr int kHalves = kRows / 8;

  typename Tile::template Query<kRows> q;
  float o[Tile::kColumns][4];  // in multiples of unit.value, where values are scaled
  float top[2], total[2];
  ValueUnit unit;
  int32_t first_of[2], end_of[2];  // keys of a row, of runs

  __device__ void start(const DecodeArgs& p, const DecodeShare& share, int g, int t) {
    const int32_t rows = kRuns ? p.group * share.run.tokens : p.group;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int32_t r = g + h * 8;
      const QueryRow row = QueryRow::of<kRuns>(p, r);
      const int64_t at = (share.token + row.token) * p.q_stride +
                         (static_cast<int>(blockIdx.x) * p.group + row.head) * kHeadDim;
      if constexpr (kRuns) {
        end_of[h] = share.end_key - max(0, share.run.tokens - 1 - row.token);
        first_of[h] = p.window > 0 ? max(0, end_of[h] - p.window) : 0;
      }
#pragma unroll
      for (int step = 0; step < Tile::kSteps; ++step) {
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
          q[step][h * 2 + upper] =
              r < rows ? load_query_pair<S>(p.q, at + Tile::q_dim(step, upper, t), p.is_bf16) : 0u;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < Tile::kColumns * 4; ++i) o[i / 4][i % 4] = 0.f;
    top[0] = top[1] = -CUDART_INF_F;
    total[0] = total[1] = 0.f;
    unit = {};
  }

  // Scores s of the 16 keys from `key` on, of which [first, end) count for every row, and their
  // values. kCapped: whether scores are capped, which a branch in this loop would make everybody
  // pay for.
  template <bool kCapped>
  __device__ void add(float (&s)[2][4], const uint8_t* keys, const uint8_t* values, int32_t key,
                      int32_t first, int32_t end, const ScoreScale& scale, int lane) {
    const int t = lane % 4;
    float v_scale[4];
    if constexpr (Tile::kScaled) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float2 k = Tile::scales(keys, n, t), v = Tile::scales(values, n, t);
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] *= e % 2 == 0 ? k.x : k.y;
        v_scale[n * 2] = v.x;
        v_scale[n * 2 + 1] = v.y;
      }
    }
    if constexpr (kCapped) {
#pragma unroll
      for (int i = 0; i < 4 * kHalves; ++i) {
        float& x = s[i / (2 * kHalves)][i % (2 * kHalves)];
        x = capped_score(x, scale.cap_log2);
      }
    }
    if (key + kTileTokens > end || key < first) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t mine = key + i / 2 * 8 + t * 2 + i % 2;
        if constexpr (kRuns) {
          bool counts = false;
#pragma unroll
          for (int h = 0; h < kHalves; ++h) {
            if (mine >= first_of[h] && mine < end_of[h]) {
              counts = true;
            } else {
              s[i / 2][h * 2 + i % 2] = -CUDART_INF_F;
            }
          }
          if (!counts) v_scale[i] = 0.f;
        } else {
          if (mine >= first && mine < end) continue;
          s[i / 2][i % 2] = s[i / 2][2 + i % 2] = -CUDART_INF_F;
          v_scale[i] = 0.f;
        }
      }
    }
    float shrink = 1.f;
    if constexpr (Tile::kScaled) {
      shrink = unit.grow(fmaxf(fmaxf(v_scale[0], v_scale[1]), fmaxf(v_scale[2], v_scale[3])));
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float best = fmaxf(fmaxf(s[0][h * 2], s[0][h * 2 + 1]), fmaxf(s[1][h * 2], s[1][h * 2 + 1]));
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 1));
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 2));
      best = fmaxf(best, top[h]);  // finite: a tile of the range has a valid key
      float base = best;
      if constexpr (kRuns) base = best == -CUDART_INF_F ? 0.f : best;  // not one for every row
      const float keep = fast_exp2((top[h] - base) * scale.log2);
      top[h] = best;
      total[h] *= keep;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = s[i / 2][h * 2 + i % 2];
        x = fast_exp2((x - base) * scale.log2);
        total[h] += x;
        if constexpr (Tile::kScaled) x *= v_scale[i] * unit.inverse;
      }
#pragma unroll
      for (int n = 0; n < Tile::kColumns; ++n) {
        o[n][h * 2] *= keep * shrink;
        o[n][h * 2 + 1] *= keep * shrink;
      }
    }
    const uint32_t a[4] = {
        pack2<T>(s[0][0], s[0][1]), kRows == 16 ? pack2<T>(s[0][2], s[0][3]) : 0u,
        pack2<T>(s[1][0], s[1][1]), kRows == 16 ? pack2<T>(s[1][2], s[1][3]) : 0u};
    Tile::accumulate(o, a, values, lane);
  }

  // All keys are in: the totals become those of the quad, the sums plain values.
  __device__ void finish() {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      total[h] += __shfl_xor_sync(kFullWarp, total[h], 1);
      total[h] += __shfl_xor_sync(kFullWarp, total[h], 2);
      if constexpr (Tile::kScaled) {
#pragma unroll
        for (int n = 0; n < Tile::kColumns; ++n) {
          o[n][h * 2] *= unit.value;
          o[n][h * 2 + 1] *= unit.value;
        }
      }
    }
  }
};

}  // namespace inferd::cuda
