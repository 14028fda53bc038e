// Causal attention of a few queries over the paged keys and values of one kv head, over the vector
// face `Simd`.
//
//   out[q] = sum_j softmax_j(cap(scale * q . k_j)) v_j   over position - window < j <= position of
//   q cap(s) = s, or softcap tanh(s / softcap); a sink is one more score, without a value: the
//   state of a query begins as if it had seen it
//
// Online softmax (Milakov and Gimelshein; FlashAttention) over tiles of kKeyTile keys at fixed
// absolute positions: the state of a query after a tile depends only on that query and on the keys,
// so decode, prefill in any chunks and prefix hits give the same bits. Keys outside a query's range
// are never multiplied, so stale memory behind them cannot matter, and blocks that fell out of the
// window are never read. Tiles are widened to f32 in scratch once for all queries of the task.
// Where values are the first part of the keys (latent attention), one tile serves for both. Scales
// of 8-bit floats are in `scale` and in value_scale, so that they cost nothing a key.
//
// Measured with AVX-512 on an EPYC (Zen 4, head size 64, bf16 cache, four query heads a kv head,
// one thread): decode at 4096 keys does 42, prefill of 512 tokens 60 of 117 GFLOP/s; a key costs
// more in widening to scratch and in summing across vectors than in its products.
#pragma once
#include "cpu/isa/kernels.h"
#include "cpu/isa/rows_kernel.h"
#include "cpu/isa/scan_kernel.h"

namespace inferd::cpu {
namespace {

constexpr int kTileVectors = kKeyTile / Simd::kWidth;

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }

// A row of the cache as floats; the rows of codes have a scale each.
template <class Codec>
inline void widen_row(float* dst, const void* row, int n, const char* scale) {
  (void)scale;
  to_f32<Codec>(dst, row, n);
}
template <>
inline void widen_row<Int8Codec>(float* dst, const void* row, int n, const char* scale) {
  float step;
  __builtin_memcpy(&step, scale, sizeof(step));
  const Simd::V factor = Simd::set(step);
  widen<Int8Codec>(dst, row, n, [&](Simd::V v) { return Simd::mul(v, factor); });
}

// Calls body(row, count, at, scales) for the runs of positions [first, end) that lie side by side
// in one block: `row` is the first of `count` rows of head_dim elements, `at` its distance from
// `first`, and `scales` where rows of codes have theirs.
// One division a run: one a position cost more than the arithmetic of a decode step.
template <class T, class Body>
inline void each_run(const T* cache, const AttentionTask& t, int first, int end, Body&& body) {
  for (int position = first; position < end;) {
    const int index = position / t.block_size, place = position - index * t.block_size;
    const int count = smaller(end - position, t.block_size - place);
    const T* block = cache + t.blocks[index] * t.block_stride;
    body(block + static_cast<int64_t>(place) * t.head_dim, count, position - first,
         reinterpret_cast<const char*>(block) + t.row_scales + 4 * static_cast<int64_t>(place));
    position += count;
  }
}

// Copies keys or values [low, high) of the tile at `base` into rows of kRow floats, padded with
// zeros to `padded`.
template <class Codec, int kRow>
inline void load_tile(float* dst, const void* cache, const AttentionTask& t, int base, int low,
                      int high, int padded) {
  using T = typename Codec::Type;
  const auto* rows = static_cast<const T*>(cache);
  // The next tile comes while this one is worked on, row by row: asked for at once, it would keep
  // the loads of this one waiting.
  const T* ahead[kKeyTile];
  const int next = base + kKeyTile, end = smaller(next + kKeyTile, t.first_position + t.tokens);
  each_run(rows, t, next, end, [&](const T* row, int count, int at, const char*) {
    for (int j = 0; j < count; ++j) ahead[at + j] = row + static_cast<int64_t>(j) * t.head_dim;
  });
  each_run(rows, t, base + low, base + high, [&](const T* row, int count, int at, const char* s) {
    for (int j = 0; j < count; ++j) {
      const int key = low + at + j;
      float* to = dst + key * kRow;
      widen_row<Codec>(to, row + static_cast<int64_t>(j) * t.head_dim, t.head_dim, s + 4 * j);
      for (int d = t.head_dim; d < padded; ++d) to[d] = 0;
      if (next + key >= end) continue;
      const auto* line = reinterpret_cast<const char*>(ahead[key]);
      for (int i = 0; i < t.head_dim * static_cast<int>(sizeof(T)); i += 64)
        __builtin_prefetch(line + i, 0, 2);
    }
  });
}

// scores[i] = q . k[i] for kWidth keys: one vector of partial sums a key, then all of them summed
// across at once. (Two queries by half as many keys, to halve the loads, was no faster: loads are
// not what limits this.)
template <int kRow>
inline Simd::V dot_keys(const float* q, const float* k, int padded) {
  Simd::V acc[Simd::kWidth];
#pragma GCC unroll 16
  for (int j = 0; j < Simd::kWidth; ++j) acc[j] = Simd::zero();
  for (int d = 0; d < padded; d += Simd::kWidth) {
    const Simd::V x = Simd::load(q + d);
#pragma GCC unroll 16
    for (int j = 0; j < Simd::kWidth; ++j)
      acc[j] = Simd::fma(x, Simd::load(k + j * kRow + d), acc[j]);
  }
  return Simd::sum_each(acc);
}

// Scores of query `i` against the tile; then p = exp(score - max) and the new max, sum and alpha of
// the query.
template <class Scratch>
inline void score_tile(Scratch& s, int i, int padded, float softcap) {
  float* p = s.p + i * kKeyTile;
  const int low = s.low[i], high = s.high[i];
  for (int j = 0; j < kKeyTile; j += Simd::kWidth) {
    if (j + Simd::kWidth <= low || j >= high) continue;
    Simd::store(p + j,
                dot_keys<Scratch::kRow>(s.q + i * Scratch::kRow, s.k + j * Scratch::kRow, padded));
  }
  if (softcap > 0) scale_cap(p + low, high - low, 1, softcap);
  for (int j = 0; j < low; ++j) p[j] = kMinusInf;
  for (int j = high; j < kKeyTile; ++j) p[j] = kMinusInf;
  Simd::V v[kTileVectors];
  for (int j = 0; j < kTileVectors; ++j) v[j] = Simd::load(p + j * Simd::kWidth);
  Simd::V best = v[0];
  for (int j = 1; j < kTileVectors; ++j) best = Simd::max(v[j], best);
  const float old = s.max[i];
  const float tile = Simd::largest(best);
  const float top = tile > old ? tile : old;
  Simd::V sum = Simd::zero();
  for (int j = 0; j < kTileVectors; ++j) {
    const Simd::V e = exp_of(Simd::sub(v[j], Simd::set(top)));
    Simd::store(p + j * Simd::kWidth, e);
    sum = Simd::add(sum, e);
  }
  // The first lane of a vector exp instead of a scalar one: one exp for everything.
  float alpha[Simd::kWidth];
  Simd::store(alpha, exp_of(Simd::set(old - top)));
  s.alpha[i] = alpha[0];
  s.max[i] = top;
  s.sum[i] = s.sum[i] * alpha[0] + Simd::sum(sum);
}

// acc = acc * alpha + p . v for Q queries with the same range of keys and D vectors of the head.
template <int Q, int D, class Scratch>
inline void add_values(Scratch& s, int i, int d) {
  constexpr int kRow = Scratch::kRow;
  const float* values = Scratch::kOneTile ? s.k : s.v;
  Simd::V acc[Q][D];
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q) {
    const Simd::V alpha = Simd::set(s.alpha[i + q]);
#pragma GCC unroll 8
    for (int c = 0; c < D; ++c) {
      acc[q][c] = Simd::mul(Simd::load(s.acc + (i + q) * kRow + d + c * Simd::kWidth), alpha);
    }
  }
  for (int j = s.low[i]; j < s.high[i]; ++j) {
    Simd::V v[D];
#pragma GCC unroll 8
    for (int c = 0; c < D; ++c) v[c] = Simd::load(values + j * kRow + d + c * Simd::kWidth);
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) {
      const Simd::V p = Simd::set(s.p[(i + q) * kKeyTile + j]);
#pragma GCC unroll 8
      for (int c = 0; c < D; ++c) acc[q][c] = Simd::fma(p, v[c], acc[q][c]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q)
#pragma GCC unroll 8
    for (int c = 0; c < D; ++c)
      Simd::store(s.acc + (i + q) * kRow + d + c * Simd::kWidth, acc[q][c]);
}

template <int Q, int D, class Scratch>
inline void add_values_row(Scratch& s, int i, int padded) {
  int d = 0;
  for (; d + D * Simd::kWidth <= padded; d += D * Simd::kWidth) add_values<Q, D>(s, i, d);
  for (; d < padded; d += Simd::kWidth) add_values<Q, 1>(s, i, d);
}

// Values of all active queries [0, n): groups of four with one range share the loads of the values.
template <class Scratch>
inline void add_tile_values(Scratch& s, int n, int padded) {
  int i = 0;
  while (i < n) {
    if (s.low[i] >= s.high[i]) {
      ++i;
      continue;
    }
    bool four = i + 4 <= n;
    for (int q = 1; four && q < 4; ++q)
      four = s.low[i + q] == s.low[i] && s.high[i + q] == s.high[i];
    if (four) {
      add_values_row<4, Simd::kValueVectors>(s, i, padded);
      i += 4;
    } else {
      add_values_row<1, 8>(s, i, padded);
      ++i;
    }
  }
}

inline int whole_vectors(int n) { return (n + Simd::kWidth - 1) / Simd::kWidth * Simd::kWidth; }

template <class Codec, class Scratch>
void attention(const AttentionTask& t, Scratch& s) {
  constexpr int kRow = Scratch::kRow;
  const int queries = t.tokens * t.heads;
  const int padded = whole_vectors(t.head_dim), padded_values = whole_vectors(t.value_dim);
  for (int i = 0; i < queries; ++i) {
    const float* q =
        t.q + i / t.heads * t.q_stride + static_cast<int64_t>(i % t.heads) * t.head_dim;
    for (int d = 0; d < padded; ++d) {
      s.q[i * kRow + d] = d < t.head_dim ? q[d] * t.scale : 0;
      s.acc[i * kRow + d] = 0;
    }
    s.max[i] = t.sinks ? t.sinks[i % t.heads] : kMinusInf;
    s.sum[i] = t.sinks ? 1 : 0;
  }
  const int last = t.first_position + t.tokens - 1;
  const int oldest = t.window > 0 ? larger(0, t.first_position - t.window + 1) : 0;
  for (int base = oldest / kKeyTile * kKeyTile; base <= last; base += kKeyTile) {
    const int low = larger(0, oldest - base), high = smaller(kKeyTile, last + 1 - base);
    load_tile<Codec, kRow>(s.k, t.k, t, base, low, high, padded);
    if (!Scratch::kOneTile) load_tile<Codec, kRow>(s.v, t.v, t, base, low, high, padded);
    for (int i = 0; i < queries; ++i) {
      const int position = t.first_position + i / t.heads;
      s.high[i] = larger(0, smaller(kKeyTile, position + 1 - base));
      s.low[i] = t.window > 0 ? smaller(kKeyTile, larger(0, position - t.window + 1 - base)) : 0;
      if (s.low[i] < s.high[i]) score_tile(s, i, padded, t.softcap);
    }
    add_tile_values(s, queries, padded_values);
  }
  for (int i = 0; i < queries; ++i) {
    float* out =
        t.out + i / t.heads * t.out_stride + static_cast<int64_t>(i % t.heads) * t.value_dim;
    const Simd::V sum = Simd::set(s.sum[i] / t.value_scale);
    each_vector(t.value_dim, [&](int64_t d, int lanes) {
      store_some(out + d, Simd::div(Simd::load(s.acc + i * kRow + d), sum), lanes);
    });
  }
}

}  // namespace
}  // namespace inferd::cpu
