// Quantized weight panels times f32 activations, for instruction sets without byte dot products,
// over the vector face `Simd`: blocks are widened to f32 where they are used, so that activations
// stay exact and weights are read at their quantized size.
//
// One row (decode) keeps the widened weights in registers, several panels side by side; more rows
// go over a block that was widened once, as in gemm_kernel.h. Both multiply the same floats in the
// same order, so a row's bits are the same either way.
#pragma once
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

struct Int8Panel {
  static constexpr bool kWiden = true;
  static constexpr int kStep = kScaleBlock;
  static constexpr int64_t kCodeBytes = kScaleBlock * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + 2 * kPanel;
  // Weight `k` of a block for one vector of outputs; exact, since code and scale have 8 bits each.
  static V weight(const char* block, int k, int i, V scale, V) {
    const auto* codes = reinterpret_cast<const uint8_t*>(block) + k * kPanel + i * kWidth;
    return Simd::mul(Simd::sub(Simd::load_u8(codes), Simd::set(128.0f)), scale);
  }
  static V min(const char*, int) { return Simd::zero(); }
};

struct Int4Panel {
  static constexpr bool kWiden = true;
  static constexpr int kStep = kScaleBlock;
  static constexpr int64_t kCodeBytes = kScaleBlock / 2 * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + 4 * kPanel;
  static V weight(const char* block, int k, int i, V scale, V min) {
    constexpr int kHalf = kScaleBlock / 2;
    const auto* codes = reinterpret_cast<const uint8_t*>(block) + k % kHalf * kPanel + i * kWidth;
    const V code = k < kHalf ? Simd::load_low4(codes) : Simd::load_high4(codes);
    return Simd::fma(code, scale, min);
  }
  static V min(const char* block, int i) {
    return Simd::load_bf16(reinterpret_cast<const uint16_t*>(block + kCodeBytes + 2 * kPanel) +
                           i * kWidth);
  }
};

template <class Panel>
inline V scale_of(const char* block, int i) {
  return Simd::load_bf16(reinterpret_cast<const uint16_t*>(block + Panel::kCodeBytes) + i * kWidth);
}

template <class Panel>
inline void widen_blocks(float* dst, const char* src, int64_t k) {
  for (int64_t done = 0; done < k; done += kScaleBlock, src += Panel::kStepBytes) {
    for (int b = 0; b < Panel::kStepBytes; b += 64) __builtin_prefetch(src + kAhead + b, 0, 2);
    for (int i = 0; i < kVectors; ++i) {
      const V scale = scale_of<Panel>(src, i), min = Panel::min(src, i);
      for (int s = 0; s < kScaleBlock; ++s)
        Simd::store(dst + (done + s) * kPanel + i * kWidth, Panel::weight(src, s, i, scale, min));
    }
  }
}

// One row, one k block, P panels.
template <class Panel, int P>
inline void row_block(const TileBlock& t) {
  V acc[1][P * kVectors];
  for (int i = 0; i < P * kVectors; ++i) acc[0][i] = Simd::zero();
  for (int64_t k = 0; k < t.k; k += kScaleBlock) {
    const int64_t at = k / kScaleBlock * Panel::kStepBytes;
    const int64_t n = t.k - k < kScaleBlock ? t.k - k : kScaleBlock;
    V scale[P * kVectors], min[P * kVectors];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      for (int b = 0; b < Panel::kStepBytes; b += 64)
        __builtin_prefetch(t.w[p] + at + kAhead + b, 0, 2);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        scale[p * kVectors + i] = scale_of<Panel>(t.w[p] + at, i);
        min[p * kVectors + i] = Panel::min(t.w[p] + at, i);
      }
    }
    for (int s = 0; s < n; ++s) {
      const V x = Simd::set(t.a[k + s]);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) {
          V& sum = acc[0][p * kVectors + i];
          sum = Simd::fma(
              x, Panel::weight(t.w[p] + at, s, i, scale[p * kVectors + i], min[p * kVectors + i]),
              sum);
        }
      }
    }
  }
  store_tile<1, P>(t, acc);
}

template <class Panel>
inline void one_row(const GemmTask& g) {
  constexpr int kBeside = kVectors > 2 ? 1 : 2;
  const int64_t end = g.first_panel + g.num_panels;
  int64_t panel = g.first_panel;
  const auto all_blocks = [&](auto block, int count) {
    for (int64_t k0 = 0; k0 < g.cols; k0 += kGemmBlock) {
      TileBlock t = block_of<Panel>(g, panel, count, k0);
      t.a = g.packed + k0;
      block(t);
    }
    panel += count;
  };
  while (panel + kBeside <= end) all_blocks(row_block<Panel, kBeside>, kBeside);
  while (panel < end) all_blocks(row_block<Panel, 1>, 1);
}

template <class Panel>
void dequant_gemm(const GemmTask& g) {
  if (g.rows == 1) return one_row<Panel>(g);
  alignas(64) float wide[kGemmBlock * kPanel];
  for (int64_t k0 = 0; k0 < g.cols; k0 += kGemmBlock) {
    for (int64_t p = g.first_panel; p < g.first_panel + g.num_panels; ++p) {
      TileBlock t = block_of<Panel>(g, p, 1, k0);
      widen_blocks<Panel>(wide, t.w[0], t.k);
      t.w[0] = reinterpret_cast<const char*>(wide);
      row_tiles<F32Panel, false>(g, t, k0);
    }
  }
}

// `t` with the quantized products of this file.
constexpr Kernels with_widening(Kernels t) {
  t.gemm[kInt8Weights] = dequant_gemm<Int8Panel>;
  t.gemm[kInt4Weights] = dequant_gemm<Int4Panel>;
  return t;
}

}  // namespace
}  // namespace inferd::cpu
