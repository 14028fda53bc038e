// Quantized weight panels times quantized activations by byte dot products, over the vector face
// `Simd` and the dot product face `Dot` (dot_vpdpbusd.h, dot_vpmaddubsw.h, dot_neon.h).
//
//   out = sum over blocks of  scale_w * scale_x * (codes_w . codes_x)  [+ min_w * scale_x * sum_x]
//
// Minima meet the sum of the row's codes in f32. Dot products of a block are exact
// integers and blocks are added in order, so a row's bits do not depend on the tile it is in.
//
// Rows are quantized once per product (quantize_tile), a few tiles at a time, and lie in tiles of
// kRows; the last ones, if there are no more than kMostRows, in one. One tile of rows streams the
// panels one after the other: four side by side cost int4 half its speed on an EPYC (Zen 4), 14
// instead of 27 GB/s a core. More rows pass over a run of blocks of one panel. Each tile takes int4
// codes apart again, in units that the products leave free: spreading them to bytes once for all
// tiles was no faster with 512 rows and slower with fewer.
//
// Bounds (Zen 5, two units for dot products and f32 multiply-adds): a block of a tile of six rows
// is 96 dot products, 12 products of scales and 12 multiply-adds, 24 with minima, so 80 % of the
// peak of dot products are in reach, 73 with minima. Tiles of eight or twelve rows, with their
// float sums in memory, are no faster over many rows.
//
// Dot says:
//   kGroup                 quant_group of the table (kernels.h)
//   kRows, kMostRows       rows of a tile, of which sums are in registers; and of one tile at most
//   Codes, kCodeBytes      a vector of codes, and how many bytes of a panel it takes; load8,
//                          load_low4 and load_high4 bring one, with_high2 adds two upper bits,
//                          of_float4 makes twice the numbers e2m1 of them, plus kFloat4Offset
//   Sums<R>                the dot products of one block: start() with the sums of the rows' codes,
//                          add() a group of inputs, at(r, i) gives vector i of row r as floats;
//                          each for a panel, of which kOffset and kLargest say what its codes are
//   load_block, largest_of, encode   a block of a row, and its 8-bit codes
//   Chain ..               a loop of nothing but dot products, for limits_kernel.h
#pragma once
#include <type_traits>

#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

constexpr int kCodeRows = 2 * Dot::kRows;  // code_rows of the table
constexpr int kGroups = kScaleBlock / Dot::kGroup;
// Blocks of one panel that many rows pass over. Each tile loads and stores its sums once a run, in
// rows that lie apart by powers of two and so in few sets of a cache: with 16 blocks, which stay in
// the first-level cache, 504 rows took a tenth longer than with 64, which do not (Zen 5, 2048
// inputs: Q8_0 63 and 69 % of the peak of dot products, Q4_K 57 and 63, Q6_K 51 and 56).
constexpr int kRunBlocks = 64;

// Rows of the tile that begins at `row` of `rows`.
inline int64_t rows_of_tile(int64_t row, int64_t rows) {
  const int64_t end = row / kCodeRows * kCodeRows + kCodeRows;
  const int64_t left = (end < rows ? end : rows) - row;
  return left <= Dot::kMostRows ? left : Dot::kRows;
}

inline V bf16_scales(const char* p) {
  return Simd::load_bf16(reinterpret_cast<const uint16_t*>(p));
}
inline V f16_scales(const char* p) { return Simd::load_f16(reinterpret_cast<const uint16_t*>(p)); }

// The vectors of one group of inputs, of codes of 8 bits and of 4.
inline Dot::Codes load_code8(const char* block, int group, int v) {
  return Dot::load8(block + group * Dot::kGroup * kPanel + v * Dot::kCodeBytes);
}
template <bool kOf8>
inline Dot::Codes load_code4(const char* block, int group, int v) {
  constexpr int kHalf = kGroups / 2;
  const char* bytes = block + group % kHalf * Dot::kGroup * kPanel + v * Dot::kCodeBytes;
  if (kOf8) return group < kHalf ? Dot::load_low4_of8(bytes) : Dot::load_high4_of8(bytes);
  return group < kHalf ? Dot::load_low4(bytes) : Dot::load_high4(bytes);
}

// Of 6 bits: the upper two come behind the lower four.
inline Dot::Codes load_code6(const char* block, int group, int v) {
  constexpr int kBeside = 8 / Dot::kGroup;  // groups whose upper bits lie side by side
  const char* high = block + kScaleBlock / 2 * kPanel + group % kBeside * Dot::kGroup * kPanel;
  return Dot::with_high2(load_code4<false>(block, group, v), high + v * Dot::kCodeBytes,
                         group / kBeside * 2);
}

// Scales of two bytes, as all have but those of e8m0.
struct ScaledCodes {
  static constexpr int kRun = 1;  // blocks with the same scales, which lie behind their codes
  static constexpr int kScaleBytes = 2;
};

// Blocks of a panel; see kernels.h. A block has kParts runs of inputs with scales of their own.
struct Int8Codes : ScaledCodes {
  static constexpr bool kHasMin = false;
  static constexpr int kParts = 1;
  static constexpr int kOffset = 128;   // of the codes above weights
  static constexpr int kLargest = 255;  // of the codes
  static constexpr int kScalesAt = kScaleBlock * kPanel;
  static constexpr int kBytes = kScalesAt + 2 * kPanel;
  static Dot::Codes load(const char* b, int group, int v) { return load_code8(b, group, v); }
  static V scales(const char* p) { return bf16_scales(p); }
};
struct Int4Codes : ScaledCodes {
  static constexpr bool kHasMin = true;
  static constexpr int kParts = 1;
  static constexpr int kOffset = 0;
  static constexpr int kLargest = 15;
  static constexpr int kScalesAt = kScaleBlock / 2 * kPanel;
  static constexpr int kBytes = kScalesAt + 4 * kPanel;
  static Dot::Codes load(const char* b, int group, int v) { return load_code4<false>(b, group, v); }
  static V scales(const char* p) { return bf16_scales(p); }
};
struct CodedInt8 : Int8Codes {
  static V scales(const char* p) { return f16_scales(p); }
};
struct CodedInt4Minima : Int4Codes {
  static V scales(const char* p) { return f16_scales(p); }
};
struct CodedInt4 : ScaledCodes {
  static constexpr bool kHasMin = false;
  static constexpr int kParts = 1;
  static constexpr int kOffset = 8;
  static constexpr int kLargest = 15;
  static constexpr int kScalesAt = kScaleBlock / 2 * kPanel;
  static constexpr int kBytes = kScalesAt + 2 * kPanel;
  static Dot::Codes load(const char* b, int group, int v) { return load_code4<true>(b, group, v); }
  static V scales(const char* p) { return f16_scales(p); }
};
struct CodedInt8Halves : ScaledCodes {
  static constexpr bool kHasMin = true;
  static constexpr int kParts = 2;
  static constexpr int kOffset = 128;
  static constexpr int kLargest = 255;
  static constexpr int kScalesAt = kScaleBlock * kPanel;
  static constexpr int kBytes = kScalesAt + 8 * kPanel;
  static Dot::Codes load(const char* b, int group, int v) { return load_code8(b, group, v); }
  static V scales(const char* p) { return f16_scales(p); }
};

struct CodedInt6Minima : ScaledCodes {
  static constexpr bool kHasMin = true;
  static constexpr int kParts = 1;
  static constexpr int kOffset = 0;
  static constexpr int kLargest = 63;
  static constexpr int kScalesAt = kScaleBlock / 4 * 3 * kPanel;
  static constexpr int kBytes = kScalesAt + 4 * kPanel;
  static Dot::Codes load(const char* b, int group, int v) { return load_code6(b, group, v); }
  static V scales(const char* p) { return f16_scales(p); }
};
struct CodedInt6Halves : ScaledCodes {
  static constexpr bool kHasMin = false;
  static constexpr int kParts = 2;
  static constexpr int kOffset = 32;
  static constexpr int kLargest = 63;
  static constexpr int kScalesAt = kScaleBlock / 4 * 3 * kPanel;
  static constexpr int kBytes = kScalesAt + 4 * kPanel;
  static Dot::Codes load(const char* b, int group, int v) {
    return Dot::of32(load_code6(b, group, v));
  }
  static V scales(const char* p) { return f16_scales(p); }
};

struct CodedFloat4 {
  static constexpr int kRun = 1;
  static constexpr int kScaleBytes = 1;
  static constexpr bool kHasMin = false;
  static constexpr int kParts = 1;
  static constexpr int kOffset = Dot::kFloat4Offset;
  static constexpr int kLargest = kOffset + 12;
  static constexpr int kScalesAt = kScaleBlock / 2 * kPanel;
  static constexpr int kBytes = kScalesAt + kPanel;
  static Dot::Codes load(const char* b, int group, int v) {
    return Dot::of_float4(load_code4<false>(b, group, v));
  }
  static V scales(const char* p) { return Simd::load_powers(reinterpret_cast<const uint8_t*>(p)); }
};
struct CodedFloat4Halves : ScaledCodes {
  static constexpr bool kHasMin = false;
  static constexpr int kParts = 2;
  static constexpr int kOffset = Dot::kFloat4Offset;
  static constexpr int kLargest = kOffset + 12;
  static constexpr int kScalesAt = kScaleBlock / 2 * kPanel;
  static constexpr int kBytes = kScalesAt + 4 * kPanel;
  static Dot::Codes load(const char* b, int group, int v) {
    return Dot::of_float4(load_code4<false>(b, group, v));
  }
  static V scales(const char* p) { return f16_scales(p); }
};

template <class Codes, int kBlocks>
struct LongCodes : Codes {
  static constexpr int kRun = kBlocks;
  static constexpr int kScalesAt = kRun * Codes::kScalesAt;
  static constexpr int kBytes = kScalesAt + Codes::kBytes - Codes::kScalesAt;
};

struct CodeTile {
  const char* rows;  // first block of the run, R rows
  const char* w;     // first block of the run
  int64_t blocks;
  TileBlock out;  // where the sums go
};

// The float sums of a tile: in registers, or, of more rows than have place there beside the sums
// of dot products, in the first-level cache.
template <int R>
struct NearSums {
  V sums[R][kVectors];
  V get(int r, int i) const { return sums[r][i]; }
  void set(int r, int i, V v) { sums[r][i] = v; }
};
template <int R>
struct FarSums {
  alignas(64) float sums[R][kPanel];
  V get(int r, int i) const { return Simd::load(sums[r] + i * kWidth); }
  void set(int r, int i, V v) { Simd::store(sums[r] + i * kWidth, v); }
};
template <int R>
using FloatSums = std::conditional_t<(R > Dot::kRows), FarSums<R>, NearSums<R>>;

template <class Codes, int R, bool kStream>
void code_tile(const CodeTile& t) {
  FloatSums<R> acc;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const float* out = t.out.out + r * t.out.out_stride + i * kWidth;
      const int64_t left = t.out.valid - i * kWidth;
      acc.set(r, i,
              t.out.first || left <= 0 ? Simd::zero()
              : left >= kWidth         ? Simd::load(out)
                                       : Simd::load_n(out, static_cast<int>(left)));
    }
  }
  const char* x = t.rows;
  const char* w = t.w;
  constexpr int kBlockBytes = Codes::kScalesAt / Codes::kRun;
  for (int64_t b = 0; b < t.blocks; ++b) {
    const int64_t in_run = b % Codes::kRun;
    const char* scales_of_run = w + Codes::kScalesAt - in_run * kBlockBytes;
    const auto* scales = reinterpret_cast<const float*>(x);
    const auto* halves = reinterpret_cast<const int16_t*>(x + 4 * R);
    const auto* scaled_sums = reinterpret_cast<const float*>(x + 8 * R);
    const char* codes = x + 12 * R;
#pragma GCC unroll 2
    for (int part = 0; part < Codes::kParts; ++part) {
      constexpr int kPartGroups = kGroups / Codes::kParts;
      int32_t sums[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
        sums[r] = Codes::kParts == 1 ? halves[2 * r] + halves[2 * r + 1] : halves[2 * r + part];
      Dot::Sums<R> dot;
      dot.template start<Codes>(sums);
#pragma GCC unroll 8
      for (int group = part * kPartGroups; group < (part + 1) * kPartGroups; ++group)
        dot.template add<Codes>(w, group, codes + group * R * Dot::kGroup);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        const char* block = scales_of_run + (part * kPanel + i * kWidth) * Codes::kScaleBytes;
        const V scale = Codes::scales(block);
        V min = scale;
        if constexpr (Codes::kHasMin) min = Codes::scales(block + Codes::kParts * 2 * kPanel);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const V both = Simd::mul(scale, Simd::set(scales[r]));
          V sum = Simd::fma(dot.template at<Codes>(r, i), both, acc.get(r, i));
          if constexpr (Codes::kHasMin && Codes::kParts == 1)
            sum = Simd::fma(min, Simd::set(scaled_sums[r]), sum);
          else if constexpr (Codes::kHasMin)
            sum = Simd::fma(min, Simd::set(scales[r] * static_cast<float>(sums[r])), sum);
          acc.set(r, i, sum);
        }
      }
    }
    if constexpr (kStream) {
      for (int i = 0; i < Codes::kBytes / Codes::kRun; i += 64)
        __builtin_prefetch(w + kAhead + i, 0, 2);
    }
    w += in_run + 1 < Codes::kRun ? kBlockBytes : kBlockBytes + Codes::kBytes - Codes::kScalesAt;
    x += R * kCodeBlockBytes;
  }
  V last[R][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) last[r][i] = acc.get(r, i);
  TileBlock out = t.out;
  out.first = true;
  store_tile<R, 1>(out, last);
}

template <class Codes, bool kStream, int R = Dot::kMostRows>
inline void code_tile_of(const CodeTile& t, int64_t rows) {
  if constexpr (R > 1) {
    if (rows < R) return code_tile_of<Codes, kStream, R - 1>(t, rows);
  }
  code_tile<Codes, R, kStream>(t);
}

// Blocks [first, first + n) of a panel.
template <class Codes>
inline CodeTile tile_at(const GemmTask& g, int64_t panel, int64_t first, int64_t n) {
  const int64_t all = (g.cols + kScaleBlock - 1) / kScaleBlock;
  const int64_t left = g.outs - panel * kPanel;
  CodeTile t{};
  t.blocks = n;
  t.out.out = g.out + panel * kPanel;
  t.out.out_stride = g.out_stride;
  t.out.first = first == 0;
  t.out.bias = g.bias && first + n == all ? g.bias + panel * kPanel : nullptr;
  t.out.valid = left < kPanel ? left : kPanel;
  t.w = g.panels + panel * g.panel_bytes + first / Codes::kRun * Codes::kBytes;
  return t;
}

// One tile of rows: each panel from end to end.
template <class Codes>
inline void stream_codes(const GemmTask& g) {
  const int64_t blocks = (g.cols + kScaleBlock - 1) / kScaleBlock;
  for (int64_t panel = g.first_panel; panel < g.first_panel + g.num_panels; ++panel) {
    CodeTile t = tile_at<Codes>(g, panel, 0, blocks);
    t.rows = reinterpret_cast<const char*>(g.packed);
    code_tile_of<Codes, true>(t, g.rows);
  }
}

// All tiles over a run of blocks of one panel; the first one brings the weights.
template <class Codes>
inline void run_of_tiles(const GemmTask& g, int64_t panel, int64_t first) {
  const int64_t blocks = (g.cols + kScaleBlock - 1) / kScaleBlock;
  CodeTile t =
      tile_at<Codes>(g, panel, first, blocks - first < kRunBlocks ? blocks - first : kRunBlocks);
  float* out = t.out.out;
  for (int64_t row = 0, rows = 0; row < g.rows; row += rows) {
    rows = rows_of_tile(row, g.rows);
    t.rows =
        reinterpret_cast<const char*>(g.packed) + (row * blocks + first * rows) * kCodeBlockBytes;
    t.out.out = out + row * g.out_stride;
    if (row == 0) {
      code_tile_of<Codes, true>(t, rows);
    } else {
      code_tile_of<Codes, false>(t, rows);
    }
  }
}

// The order of panels and runs keeps the rows near, as in gemm_kernel.h.
template <class Codes>
void code_gemm(const GemmTask& g) {
  if (g.rows <= Dot::kMostRows) return stream_codes<Codes>(g);
  const int64_t blocks = (g.cols + kScaleBlock - 1) / kScaleBlock;
  const int64_t end = g.first_panel + g.num_panels;
  if (g.rows * blocks * kCodeBlockBytes <= kNearFloats * int64_t{sizeof(float)}) {
    for (int64_t p = g.first_panel; p < end; ++p)
      for (int64_t first = 0; first < blocks; first += kRunBlocks) run_of_tiles<Codes>(g, p, first);
  } else {
    for (int64_t first = 0; first < blocks; first += kRunBlocks)
      for (int64_t p = g.first_panel; p < end; ++p) run_of_tiles<Codes>(g, p, first);
  }
}

// See limits_kernel.h.
constexpr int kDotChains = 12;
constexpr int64_t kDotStepOps = int64_t{2} * kDotChains * Dot::kChainProducts;

int64_t dot_chains(int64_t steps) {
  Dot::Chain acc[kDotChains];
  for (int i = 0; i < kDotChains; ++i) acc[i] = Dot::chain(i);
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kDotChains; ++i) acc[i] = Dot::chain_step(acc[i]);
  }
  int64_t sum = 0;
  for (int i = 0; i < kDotChains; ++i) sum += Dot::chain_sum(acc[i]);
  return sum;
}

// `q` as row `row` of the block of R = `rows` rows that begins at `block`.
inline void store_codes(char* block, const QuantizedBlock& q, int64_t row, int64_t rows) {
  __builtin_memcpy(block + row * 4, &q.scale, 4);
  __builtin_memcpy(block + (rows + row) * 4, q.sums, 4);
  // Of a row's codes, for minima: made once here and not by each panel.
  const float scaled_sum = q.scale * static_cast<float>(q.sums[0] + q.sums[1]);
  __builtin_memcpy(block + (2 * rows + row) * 4, &scaled_sum, 4);
  char* codes = block + 3 * rows * 4 + row * Dot::kGroup;
  for (int group = 0; group < kGroups; ++group)
    __builtin_memcpy(codes + group * rows * Dot::kGroup, q.codes + group * Dot::kGroup,
                     Dot::kGroup);
}

// `count` blocks of each of `rows` rows, together kMostRows at most, `n` inputs of a row at most.
// In passes over all of them: what is done with one block is a long chain, of which several run at
// once.
inline void quantize_blocks(char* block, const float* x, int64_t x_stride, int64_t rows,
                            int64_t count, int64_t n) {
  V values[Dot::kMostRows][kBlockVectors];
  float largest[Dot::kMostRows], steps[Dot::kMostRows];
  alignas(64) float errors[Dot::kMostRows][kTries];
  const int64_t all = count * rows;
  for (int64_t b = 0, i = 0; b < count; ++b)
    for (int64_t r = 0; r < rows; ++r, ++i) {
      Dot::load_block(x + r * x_stride + b * kScaleBlock, n - b * kScaleBlock, values[i]);
      largest[i] = Dot::largest_of(values[i]);
    }
  for (int64_t i = 0; i < all; ++i) errors_of_steps(values[i], largest[i], errors[i]);
  for (int64_t i = 0; i < all; ++i) steps[i] = steps_of_least(errors[i]);
  for (int64_t b = 0, i = 0; b < count; ++b)
    for (int64_t r = 0; r < rows; ++r, ++i)
      store_codes(block + b * rows * kCodeBlockBytes, Dot::encode(values[i], largest[i], steps[i]),
                  r, rows);
}

void quantize_tile(void* tile, const float* x, int64_t x_stride, int64_t rows, int64_t cols) {
  char* block = static_cast<char*>(tile);
  for (int64_t row = 0, n = 0; row < rows; row += n) {
    n = rows_of_tile(row, rows);
    const int64_t blocks = (cols + kScaleBlock - 1) / kScaleBlock, most = Dot::kMostRows / n;
    for (int64_t first = 0, count = 0; first < blocks; first += count) {
      count = blocks - first < most ? blocks - first : most;
      const int64_t k = first * kScaleBlock;
      quantize_blocks(block, x + row * x_stride + k, x_stride, n, count, cols - k);
      block += count * n * kCodeBlockBytes;
    }
  }
}

// `t` with the quantized products of this file.
constexpr Kernels with_codes(Kernels t) {
  t.quant_group = Dot::kGroup;
  t.code_rows = kCodeRows;
  t.gemm[kInt8Weights] = code_gemm<Int8Codes>;
  t.gemm[kInt4Weights] = code_gemm<Int4Codes>;
  t.gemm[kCodedInt8Weights] = code_gemm<CodedInt8>;
  t.gemm[kCodedInt4Weights] = code_gemm<CodedInt4>;
  t.gemm[kCodedInt4MinimaWeights] = code_gemm<CodedInt4Minima>;
  t.gemm[kCodedInt8HalvesWeights] = code_gemm<CodedInt8Halves>;
  t.gemm[kCodedInt6MinimaWeights] = code_gemm<CodedInt6Minima>;
  t.gemm[kCodedInt6HalvesWeights] = code_gemm<CodedInt6Halves>;
  t.gemm[kCodedFloat4Weights] = code_gemm<CodedFloat4>;
  t.gemm[kCodedFloat4HalvesWeights] = code_gemm<CodedFloat4Halves>;
  t.gemm[kCodedInt8By64Weights] = code_gemm<LongCodes<CodedInt8, 2>>;
  t.gemm[kCodedInt8By128Weights] = code_gemm<LongCodes<CodedInt8, 4>>;
  t.gemm[kCodedInt4By64Weights] = code_gemm<LongCodes<CodedInt4, 2>>;
  t.gemm[kCodedInt4By128Weights] = code_gemm<LongCodes<CodedInt4, 4>>;
  t.gemm[kCodedInt4MinimaBy64Weights] = code_gemm<LongCodes<CodedInt4Minima, 2>>;
  t.gemm[kCodedInt4MinimaBy128Weights] = code_gemm<LongCodes<CodedInt4Minima, 4>>;
  t.quantize_tile = quantize_tile;
  t.dot_chains = dot_chains;
  t.dot_step_ops = kDotStepOps;
  return t;
}

}  // namespace
}  // namespace inferd::cpu
