// Quantized weight panels times quantized activations by the byte dot product of AVX-512 VNNI.
// Included by kernels_avx512vnni.cpp only.
//
//   out = sum over blocks of  scale_w * scale_x * (codes_w . codes_x)  [+ min_w * scale_x * sum_x]
//
// vpdpbusd multiplies unsigned by signed bytes: weights are the unsigned side. The 128 that int8
// codes are off by is taken back through the sum of the row's codes, which the accumulators start
// from; the minimum of int4 meets the same sum in f32. Dot products of a block are exact integers
// and blocks are added in order, so a row's bits do not depend on the tile it is in.
//
// Rows are quantized once per product (quantize_tile). One tile of rows streams the panels one
// after the other: four side by side cost int4 half its speed on an EPYC (Zen 4), 14 instead of 27
// GB/s a core. More rows pass over a run of blocks of one panel that stays in the first-level
// cache. Each tile takes int4 codes apart again, in units that the products leave free: spreading
// them to bytes once for all tiles was no faster with 512 rows and slower with fewer.
#pragma once
#include "cpu/kernels.h"

namespace inferd::cpu {
namespace {

constexpr int kCodeRows = 6;  // 12 integer and 12 float sums, weights and scales in registers
constexpr int kGroups = kScaleBlock / 4;
constexpr int kGroupBytes = kPanel * 4;
constexpr int kRunBlocks = 16;  // blocks of one panel that many rows pass over: 17 KiB

struct Int8Codes {
  static constexpr bool kHasMin = false;
  static constexpr int kScalesAt = kGroups * kGroupBytes;
  static constexpr int kBytes = kScalesAt + 2 * kPanel;
  static __m512i start(int32_t sum) { return _mm512_set1_epi32(-128 * sum); }
  static __m512i load(const char* block, int group, int v) {
    return _mm512_load_si512(block + group * kGroupBytes + v * 64);
  }
};
struct Int4Codes {
  static constexpr bool kHasMin = true;
  static constexpr int kScalesAt = kGroups / 2 * kGroupBytes;
  static constexpr int kBytes = kScalesAt + 4 * kPanel;
  static __m512i start(int32_t) { return _mm512_setzero_si512(); }
  static __m512i load(const char* block, int group, int v) {
    const __m512i bytes = _mm512_load_si512(block + group % (kGroups / 2) * kGroupBytes + v * 64);
    const __m512i half = group < kGroups / 2 ? bytes : _mm512_srli_epi16(bytes, 4);
    return _mm512_and_si512(half, _mm512_set1_epi8(15));
  }
};

struct CodeTile {
  const char* rows;  // first block of the run, R rows
  const char* w;     // first block of the run
  int64_t blocks;
  TileBlock out;  // where the sums go
};

inline V bf16_scales(const char* p) {
  return Simd::load_bf16(reinterpret_cast<const uint16_t*>(p));
}

template <class Codes, int R, bool kStream>
void code_tile(const CodeTile& t) {
  V acc[R][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const float* out = t.out.out + r * t.out.out_stride + i * kWidth;
      const int64_t left = t.out.valid - i * kWidth;
      acc[r][i] = t.out.first || left <= 0 ? Simd::zero()
                  : left >= kWidth         ? Simd::load(out)
                                           : Simd::load_n(out, static_cast<int>(left));
    }
  }
  const char* x = t.rows;
  const char* w = t.w;
  for (int64_t b = 0; b < t.blocks; ++b) {
    const auto* scales = reinterpret_cast<const float*>(x);
    const auto* sums = reinterpret_cast<const int32_t*>(x + 4 * R);
    const char* codes = x + 8 * R;
    __m512i dot[R][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) dot[r][i] = Codes::start(sums[r]);
#pragma GCC unroll 8
    for (int group = 0; group < kGroups; ++group) {
      __m512i weights[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) weights[i] = Codes::load(w, group, i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        int32_t four;
        __builtin_memcpy(&four, codes + (group * R + r) * 4, 4);
        const __m512i broadcast = _mm512_set1_epi32(four);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          dot[r][i] = _mm512_dpbusd_epi32(dot[r][i], weights[i], broadcast);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const char* block = w + Codes::kScalesAt + i * kWidth * 2;
      const V scale = bf16_scales(block);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const V both = Simd::mul(scale, Simd::set(scales[r]));
        acc[r][i] = Simd::fma(_mm512_cvtepi32_ps(dot[r][i]), both, acc[r][i]);
      }
      if constexpr (Codes::kHasMin) {
        const V min = bf16_scales(block + 2 * kPanel);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const V sum = Simd::set(scales[r] * static_cast<float>(sums[r]));
          acc[r][i] = Simd::fma(min, sum, acc[r][i]);
        }
      }
    }
    if constexpr (kStream) {
      for (int i = 0; i < Codes::kBytes; i += 64) __builtin_prefetch(w + kAhead + i, 0, 2);
    }
    w += Codes::kBytes;
    x += R * kCodeBlockBytes;
  }
  TileBlock out = t.out;
  out.first = true;
  store_tile<R, 1>(out, acc);
}

template <class Codes, bool kStream, int R = kCodeRows>
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
  t.w = g.panels + panel * g.panel_bytes + first * Codes::kBytes;
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
  for (int64_t row = 0; row < g.rows; row += kCodeRows) {
    const int64_t rows = g.rows - row < kCodeRows ? g.rows - row : kCodeRows;
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
  if (g.rows <= kCodeRows) return stream_codes<Codes>(g);
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
constexpr int64_t kDotStepOps = int64_t{2} * kDotChains * 64;

int64_t dot_chains(int64_t steps) {
  __m512i acc[kDotChains];
  for (int i = 0; i < kDotChains; ++i) acc[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1);
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kDotChains; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], a, b);
  }
  __m512i sum = acc[0];
  for (int i = 1; i < kDotChains; ++i) sum = _mm512_add_epi32(sum, acc[i]);
  return _mm512_reduce_add_epi32(sum);
}

// Symmetric, 127 steps to the largest magnitude of the block. Magnitudes are compared as bits, so
// that a NaN or an infinity makes the scale one and with it all products of the block.
inline void quantize_block(char* block, const float* x, int64_t n, int64_t row, int64_t rows) {
  const __mmask32 lanes = n >= kScaleBlock ? ~0u : (1u << n) - 1u;
  const auto half = [&](int i) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> (16 * i)), x + 16 * i);
  };
  const V a = half(0), b = half(1);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i top = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                       _mm512_and_si512(_mm512_castps_si512(b), magnitude));
  const float largest = __builtin_bit_cast(float, _mm512_reduce_max_epu32(top));
  const float scale = largest * (1.0f / 127.0f);
  const V inverse = Simd::set(largest > 0 ? 127.0f / largest : 0.0f);
  const __m512i codes_a = _mm512_cvtps_epi32(Simd::mul(a, inverse));
  const __m512i codes_b = _mm512_cvtps_epi32(Simd::mul(b, inverse));
  alignas(32) char codes[kScaleBlock];
  _mm_store_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtsepi32_epi8(codes_a));
  _mm_store_si128(reinterpret_cast<__m128i*>(codes + 16), _mm512_cvtsepi32_epi8(codes_b));
  const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes));
  const __m256i ones = _mm256_set1_epi8(1);
  const __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), ones, bytes);
  alignas(32) int32_t parts[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(parts), fours);
  int32_t sum = 0;
  for (const int32_t part : parts) sum += part;
  __builtin_memcpy(block + row * 4, &scale, 4);
  __builtin_memcpy(block + (rows + row) * 4, &sum, 4);
  for (int group = 0; group < kGroups; ++group)
    __builtin_memcpy(block + (2 * rows + group * rows + row) * 4, codes + group * 4, 4);
}

void quantize_tile(void* tile, const float* x, int64_t x_stride, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    char* block = static_cast<char*>(tile);
    for (int64_t k = 0; k < cols; k += kScaleBlock, block += rows * kCodeBlockBytes)
      quantize_block(block, x + r * x_stride + k, cols - k, r, rows);
  }
}

}  // namespace
}  // namespace inferd::cpu
