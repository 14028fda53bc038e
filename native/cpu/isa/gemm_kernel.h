// Weight panels times activations, over the vector face `Simd` of the file that includes this.
//
// One tile = R rows x P panels. Per k: one broadcast of each row's activation, one fused
// multiply-add a row and vector.
//
// Few rows (decode): the time is that of streaming the weights. A panel is read from end to end
// with prefetches ahead of the loads, and no more panels side by side than hide the latency of the
// sums: memory is fastest when a core reads one stretch after the other (panels_beside).
//
// Many rows (prefill): a block of a panel stays in the first-level cache while the tiles of rows,
// packed so that a tile reads consecutive memory, pass over it (Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", with the roles of the operands exchanged). Where
// widening in each tile costs, the block is widened to f32 once for all of them.
//
// bf16 weights are widened: the instructions that multiply pairs of bf16 would round activations to
// 8 bits, and to keep 16 by a second product they do no more a cycle than multiply-adds of f32.
//
// The k blocks are summed from zero and then added to the output, so a row's bits are the same in
// every variant.
//
// Measured with AVX-512 on an EPYC (Zen 4, 3.7 GHz, bf16 weights 8192 x 2048, one thread, CPU
// time): 1 to 4 rows stream 31 to 23 GB/s where a plain read loop gets 32; 24 to 512 rows reach 106
// to 101 of 117 GFLOP/s (AVX2: 98 of 116).
#pragma once
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

using V = Simd::V;
constexpr int kWidth = Simd::kWidth;
constexpr int kVectors = Simd::kPanelVectors;
constexpr int kPanel = kVectors * kWidth;
constexpr int kRows = Simd::kTileRows;
constexpr int kMaxBeside = 2;
// Bytes ahead of the weights in use that streaming products ask for, into the second-level cache:
// asked into the first, they keep its few miss buffers from the loads (Zen 4, two threads, one row
// of int8: 23 instead of 27 GB/s a thread).
constexpr int kAhead = 2048;

// Panels side by side for R rows. Each is one more stream of memory, and streams cost: on an EPYC
// (Zen 4) one row of bf16 got 30 GB/s from one panel of 32, 28 from two, 24 from four. One such
// panel at a time still computes 55 GB/s; sums over narrower vectors need two panels to get there.
template <class Panel>
constexpr int panels_beside(int r) {
  return (kWidth < 16 || Panel::kNarrow) && 2 * r <= kRows ? 2 : 1;
}
// From this many tiles on widening a block first is cheaper than widening in each tile.
constexpr int kWidenTiles = 3;
// Floats of packed rows that stay in a second-level cache (1 MiB is common) beside the weights.
constexpr int64_t kNearFloats = 192 << 10;

// What a panel says beside its layout.
struct F32Panel;
struct UnscaledPanel {
  static constexpr int kBlock = kGemmBlock;  // inputs that are summed from zero
  static constexpr bool kScaled = false;     // sums of a block are multiplied by scales
  static constexpr bool kNarrow = false;     // less than two bytes a weight: more sums at once
  using Wide = F32Panel;                     // the same, widened
  static const float* block_scales(const GemmTask&, int64_t, int64_t) { return nullptr; }
};

struct F32Panel : UnscaledPanel {
  static constexpr int kStep = 1;  // k per load
  static constexpr int64_t kStepBytes = kPanel * 4;
  static constexpr bool kWiden = false;
  static void load(const char* p, V (*w)[kVectors]) {
    for (int i = 0; i < kVectors; ++i)
      w[0][i] = Simd::load(reinterpret_cast<const float*>(p) + i * kWidth);
  }
};
struct F16Panel : UnscaledPanel {
  static constexpr int kStep = 1;
  static constexpr int64_t kStepBytes = kPanel * 2;
  static constexpr bool kWiden = true;
  static void load(const char* p, V (*w)[kVectors]) {
    for (int i = 0; i < kVectors; ++i)
      w[0][i] = Simd::load_f16(reinterpret_cast<const uint16_t*>(p) + i * kWidth);
  }
};
struct Bf16Panel : UnscaledPanel {
  static constexpr int kStep = 2;
  static constexpr int64_t kStepBytes = kPanel * 4;
  // A shift and a mask for 24 multiply-adds disappear: 32 rows did 105 instead of 84 GFLOP/s (Zen
  // 4).
  static constexpr bool kWiden = kWidth < 16;
  static void load(const char* p, V (*w)[kVectors]) {
    for (int i = 0; i < kVectors; ++i) {
      const Simd::Words words = Simd::load_words(p + i * kWidth * 4);
      w[0][i] = Simd::first_bf16(words);
      w[1][i] = Simd::second_bf16(words);
    }
  }
};

// Of a block of 8-bit floats that was widened before.
template <class Panel>
struct WidePanel : F32Panel {
  static constexpr int kBlock = Panel::kBlock;
  static constexpr bool kScaled = true;
  static V scale(const float* scales, int i) { return Panel::scale(scales, i); }
};

// 8-bit floats (e4m3), widened where they are used, which is exact: a code becomes a half float by
// a shift and a mask, 2^8 too small, and the conversion of the machine does the rest, numbers below
// the normal ones among them. The sums of a block of inputs meet its scales, which make up for the
// 2^8. kPerRow: outputs have scales of their own; else those of a panel share one.
template <int kInputs, bool kPerRow>
struct Float8Panel {
  static constexpr int kBlock = kInputs;
  static constexpr bool kScaled = true;
  // Sums over one panel at a time keep memory waiting (Zen 5: 44 GB/s).
  static constexpr bool kNarrow = true;
  using Wide = WidePanel<Float8Panel>;
  static constexpr int kStep = 2;
  static constexpr int64_t kStepBytes = 2 * kPanel;
  static constexpr bool kWiden = true;
  static void load(const char* p, V (*w)[kVectors]) {
    Simd::load_float8(p, w[0]);
    Simd::load_float8(p + kPanel, w[1]);
  }
  static const float* block_scales(const GemmTask& g, int64_t panel, int64_t k0) {
    const int64_t codes = (g.cols + kStep - 1) / kStep * kStepBytes;
    const auto* all = reinterpret_cast<const float*>(g.panels + panel * g.panel_bytes + codes);
    if (kInputs != kFloat8Block) return all;
    return all + k0 / kFloat8Block * (kPerRow ? kPanel : 1);
  }
  static V scale(const float* scales, int i) {
    const V s = kPerRow ? Simd::load(scales + i * kWidth) : Simd::set(*scales);
    return Simd::mul(s, Simd::set(256.0f));
  }
};

// One k block of one tile.
struct TileBlock {
  const float* a;  // [k][R]
  const char* w[kMaxBeside];
  const float* scales[kMaxBeside];  // of this block, where the panel has any
  int64_t k;                        // inputs of this block
  float* out;                       // first row, first column of the first panel
  int64_t out_stride;
  int64_t valid;      // columns of the last panel that exist
  const float* bias;  // of the first panel; null before the last block
  bool first;
};

template <int R, int P>
inline void store_tile(const TileBlock& t, const V (&acc)[R][P * kVectors]) {
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < P * kVectors; ++i) {
      float* out = t.out + r * t.out_stride + i * kWidth;
      const int64_t left = (P - 1) * kPanel + t.valid - i * kWidth;
      if (left <= 0) break;
      if (left >= kWidth) {
        V v = t.first ? acc[r][i] : Simd::add(Simd::load(out), acc[r][i]);
        if (t.bias) v = Simd::add(v, Simd::load(t.bias + i * kWidth));
        Simd::store(out, v);
      } else {
        const int n = static_cast<int>(left);
        V v = t.first ? acc[r][i] : Simd::add(Simd::load_n(out, n), acc[r][i]);
        if (t.bias) v = Simd::add(v, Simd::load_n(t.bias + i * kWidth, n));
        Simd::store_n(out, v, n);
      }
    }
  }
}

template <class Panel, int R, int P>
inline void scale_tile(const TileBlock& t, V (&acc)[R][P * kVectors]) {
  if constexpr (Panel::kScaled) {
    for (int i = 0; i < P * kVectors; ++i) {
      const V scale = Panel::scale(t.scales[i / kVectors], i % kVectors);
      for (int r = 0; r < R; ++r) acc[r][i] = Simd::mul(acc[r][i], scale);
    }
  }
}

template <class Panel, int R, int P, bool kStream>
void tile_block(const TileBlock& t) {
  V acc[R][P * kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < P * kVectors; ++i) acc[r][i] = Simd::zero();
  const float* a = t.a;
  const char* w[P];
  for (int p = 0; p < P; ++p) w[p] = t.w[p];
  int64_t k = t.k;
  for (; k >= Panel::kStep; k -= Panel::kStep) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      V wide[Panel::kStep][kVectors];
      Panel::load(w[p], wide);
      if constexpr (kStream) {
        for (int b = 0; b < Panel::kStepBytes; b += 64) __builtin_prefetch(w[p] + kAhead + b, 0, 2);
      }
#pragma GCC unroll 2
      for (int s = 0; s < Panel::kStep; ++s) {
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const V x = Simd::set(a[s * R + r]);
#pragma GCC unroll 4
          for (int i = 0; i < kVectors; ++i) {
            acc[r][p * kVectors + i] = Simd::fma(x, wide[s][i], acc[r][p * kVectors + i]);
          }
        }
      }
      w[p] += Panel::kStepBytes;
    }
    a += R * Panel::kStep;
  }
  if constexpr (Panel::kStep == 2) {
    if (k > 0) {
      for (int p = 0; p < P; ++p) {
        V wide[2][kVectors];
        Panel::load(w[p], wide);
        for (int r = 0; r < R; ++r) {
          for (int i = 0; i < kVectors; ++i) {
            acc[r][p * kVectors + i] =
                Simd::fma(Simd::set(a[r]), wide[0][i], acc[r][p * kVectors + i]);
          }
        }
      }
    }
  }
  scale_tile<Panel, R, P>(t, acc);
  store_tile<R, P>(t, acc);
}

template <class Panel, bool kStream, int R = kRows>
inline void tile_of(const TileBlock& t, int64_t rows) {
  if constexpr (R > 1) {
    if (rows < R) return tile_of<Panel, kStream, R - 1>(t, rows);
  }
  tile_block<Panel, R, 1, kStream>(t);
}

// Widens `k` inputs of a panel to f32 [k][kPanel].
template <class Panel>
inline void widen(float* dst, const char* src, int64_t k) {
  for (int64_t done = 0; done < k; done += Panel::kStep) {
    V wide[Panel::kStep][kVectors];
    Panel::load(src, wide);
    for (int b = 0; b < Panel::kStepBytes; b += 64) __builtin_prefetch(src + kAhead + b, 0, 2);
    src += Panel::kStepBytes;
    for (int s = 0; s < Panel::kStep && done + s < k; ++s) {
      for (int i = 0; i < kVectors; ++i)
        Simd::store(dst + (done + s) * kPanel + i * kWidth, wide[s][i]);
    }
  }
}

// Block at k0 of `count` panels side by side.
template <class Panel>
inline TileBlock block_of(const GemmTask& g, int64_t panel, int count, int64_t k0) {
  TileBlock t{};
  t.k = g.cols - k0 < Panel::kBlock ? g.cols - k0 : Panel::kBlock;
  t.out = g.out + panel * kPanel;
  t.out_stride = g.out_stride;
  t.first = k0 == 0;
  t.bias = g.bias && k0 + t.k == g.cols ? g.bias + panel * kPanel : nullptr;
  const int64_t left = g.outs - (panel + count - 1) * kPanel;
  t.valid = left < kPanel ? left : kPanel;
  for (int p = 0; p < count; ++p) {
    t.w[p] = g.panels + (panel + p) * g.panel_bytes + k0 / Panel::kStep * Panel::kStepBytes;
    t.scales[p] = Panel::block_scales(g, panel + p, k0);
  }
  return t;
}

// One tile of R rows over all panels of the task.
template <class Panel, int R>
inline void stream_tile(const GemmTask& g) {
  constexpr int kBeside = panels_beside<Panel>(R);
  const int64_t end = g.first_panel + g.num_panels;
  int64_t panel = g.first_panel;
  const auto all_blocks = [&](auto block, int count) {
    for (int64_t k0 = 0; k0 < g.cols; k0 += Panel::kBlock) {
      TileBlock t = block_of<Panel>(g, panel, count, k0);
      t.a = g.packed + k0 * R;
      block(t);
    }
    panel += count;
  };
  while (panel + kBeside <= end) all_blocks(tile_block<Panel, R, kBeside, true>, kBeside);
  while (panel < end) all_blocks(tile_block<Panel, R, 1, true>, 1);
}

template <class Panel, int R = kRows>
inline void stream_rows(const GemmTask& g) {
  if constexpr (R > 1) {
    if (g.rows < R) return stream_rows<Panel, R - 1>(g);
  }
  stream_tile<Panel, R>(g);
}

// All tiles over one block; with kStream the first one brings the weights.
template <class Panel, bool kStream>
inline void row_tiles(const GemmTask& g, const TileBlock& first, int64_t k0) {
  TileBlock t = first;
  for (int64_t row = 0; row < g.rows; row += kRows) {
    const int64_t rows = g.rows - row < kRows ? g.rows - row : kRows;
    t.a = g.packed + row * g.cols + k0 * rows;
    t.out = first.out + row * g.out_stride;
    if (kStream && row == 0) {
      tile_of<Panel, true>(t, rows);
    } else {
      tile_of<Panel, false>(t, rows);
    }
  }
}

template <class Panel, bool kWide>
inline void panel_block(const GemmTask& g, int64_t panel, int64_t k0, float* wide) {
  TileBlock t = block_of<Panel>(g, panel, 1, k0);
  if constexpr (kWide) {
    widen<Panel>(wide, t.w[0], t.k);
    t.w[0] = reinterpret_cast<const char*>(wide);
    row_tiles<typename Panel::Wide, false>(g, t, k0);
  } else {
    row_tiles<Panel, true>(g, t, k0);
  }
}

// The order of panels and k blocks keeps the packed rows in the second-level cache: all of them
// when they fit, else one block of k over the panels of the task.
template <class Panel, bool kWide>
inline void many_tiles(const GemmTask& g) {
  alignas(64) float wide[kWide ? Panel::kBlock * kPanel : 1];
  const int64_t end = g.first_panel + g.num_panels;
  if (g.rows * g.cols <= kNearFloats) {
    for (int64_t p = g.first_panel; p < end; ++p)
      for (int64_t k0 = 0; k0 < g.cols; k0 += Panel::kBlock)
        panel_block<Panel, kWide>(g, p, k0, wide);
  } else {
    for (int64_t k0 = 0; k0 < g.cols; k0 += Panel::kBlock)
      for (int64_t p = g.first_panel; p < end; ++p) panel_block<Panel, kWide>(g, p, k0, wide);
  }
}

template <class Panel>
void gemm(const GemmTask& g) {
  if (g.rows <= kRows) return stream_rows<Panel>(g);
  if (Panel::kWiden && g.rows > kRows * (kWidenTiles - 1))
    return many_tiles<Panel, Panel::kWiden>(g);
  many_tiles<Panel, false>(g);
}

// `t` with the products of 8-bit floats.
constexpr Kernels with_float8(Kernels t) {
  t.gemm[kFloat8RowsWeights] = gemm<Float8Panel<kGemmBlock, true>>;
  t.gemm[kFloat8BlocksWeights] = gemm<Float8Panel<kFloat8Block, false>>;
  t.gemm[kFloat8GroupsWeights] = gemm<Float8Panel<kFloat8Block, true>>;
  return t;
}

}  // namespace
}  // namespace inferd::cpu
