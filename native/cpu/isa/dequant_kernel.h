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

inline V bf16_at(const char* p) { return Simd::load_bf16(reinterpret_cast<const uint16_t*>(p)); }
inline V f16_at(const char* p) { return Simd::load_f16(reinterpret_cast<const uint16_t*>(p)); }

// A vector of outputs of input `k` of a block: codes of 8 bits, and of 4.
inline V code8_at(const char* block, int k, int i) {
  return Simd::load_u8(reinterpret_cast<const uint8_t*>(block) + k * kPanel + i * kWidth);
}
inline V code4_at(const char* block, int k, int i) {
  constexpr int kHalf = kScaleBlock / 2;
  const auto* codes = reinterpret_cast<const uint8_t*>(block) + k % kHalf * kPanel + i * kWidth;
  return k < kHalf ? Simd::load_low4(codes) : Simd::load_high4(codes);
}

// Of 6 bits: the upper two come behind the lower four.
inline V code6_at(const char* block, int k, int i) {
  constexpr int kLow = kScaleBlock / 2;
  const auto* high = reinterpret_cast<const uint8_t*>(block) + (kLow + k % 8) * kPanel + i * kWidth;
  return Simd::fma(Simd::load_bits2(high, k / 8 * 2), Simd::set(16.0f), code4_at(block, k, i));
}

// Twice a number of e2m1.
inline V float4_at(const char* block, int k, int i) {
  constexpr int kHalf = kScaleBlock / 2;
  const auto* codes = reinterpret_cast<const uint8_t*>(block) + k % kHalf * kPanel + i * kWidth;
  return Simd::load_float4(codes, k >= kHalf);
}

// Panels of blocks have scales of two bytes, but for those of e8m0.
struct BlockPanel : UnscaledPanel {
  static constexpr int kScaleBytes = 2;
};

// Blocks of a panel; see kernels.h. A block has kParts runs of inputs with scales of their own.
struct Int8Panel : BlockPanel {
  static constexpr int kStep = kScaleBlock;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kCodeBytes = kScaleBlock * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + 2 * kPanel;
  static V scales(const char* p) { return bf16_at(p); }
  // Exact, since code and scale have 8 bits each.
  static V weight(const char* block, int k, int i, V scale, V) {
    return Simd::mul(Simd::sub(code8_at(block, k, i), Simd::set(128.0f)), scale);
  }
};
struct Int4Panel : BlockPanel {
  static constexpr int kStep = kScaleBlock;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = true;
  static constexpr int64_t kCodeBytes = kScaleBlock / 2 * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + 4 * kPanel;
  static V scales(const char* p) { return bf16_at(p); }
  static V weight(const char* block, int k, int i, V scale, V min) {
    return Simd::fma(code4_at(block, k, i), scale, min);
  }
};
struct CodedInt8Panel : Int8Panel {
  static V scales(const char* p) { return f16_at(p); }
};
struct CodedInt4MinimaPanel : Int4Panel {
  static V scales(const char* p) { return f16_at(p); }
};
struct CodedInt4Panel : BlockPanel {
  static constexpr int kStep = kScaleBlock;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kCodeBytes = kScaleBlock / 2 * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + 2 * kPanel;
  static V scales(const char* p) { return f16_at(p); }
  static V weight(const char* block, int k, int i, V scale, V) {
    return Simd::mul(Simd::sub(code4_at(block, k, i), Simd::set(8.0f)), scale);
  }
};
struct CodedInt8HalvesPanel : BlockPanel {
  static constexpr int kStep = kScaleBlock;
  static constexpr int kParts = 2;
  static constexpr bool kHasMin = true;
  static constexpr int64_t kCodeBytes = kScaleBlock * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + 8 * kPanel;
  static V scales(const char* p) { return f16_at(p); }
  static V weight(const char* block, int k, int i, V scale, V min) {
    return Simd::fma(Simd::sub(code8_at(block, k, i), Simd::set(128.0f)), scale, min);
  }
};

struct CodedInt6MinimaPanel : BlockPanel {
  static constexpr int kStep = kScaleBlock;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = true;
  static constexpr int64_t kCodeBytes = kScaleBlock / 4 * 3 * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + 4 * kPanel;
  static V scales(const char* p) { return f16_at(p); }
  static V weight(const char* block, int k, int i, V scale, V min) {
    return Simd::fma(code6_at(block, k, i), scale, min);
  }
};
struct CodedInt6HalvesPanel : BlockPanel {
  static constexpr int kStep = kScaleBlock;
  static constexpr int kParts = 2;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kCodeBytes = kScaleBlock / 4 * 3 * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + 4 * kPanel;
  static V scales(const char* p) { return f16_at(p); }
  static V weight(const char* block, int k, int i, V scale, V) {
    return Simd::mul(Simd::sub(code6_at(block, k, i), Simd::set(32.0f)), scale);
  }
};

struct CodedFloat4Panel : BlockPanel {
  static constexpr int kStep = kScaleBlock;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = false;
  static constexpr int kScaleBytes = 1;
  static constexpr int64_t kCodeBytes = kScaleBlock / 2 * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + kPanel;
  static V scales(const char* p) { return Simd::load_powers(reinterpret_cast<const uint8_t*>(p)); }
  static V weight(const char* block, int k, int i, V scale, V) {
    return Simd::mul(float4_at(block, k, i), scale);
  }
};
struct CodedFloat4HalvesPanel : BlockPanel {
  static constexpr int kStep = kScaleBlock;
  static constexpr int kParts = 2;
  static constexpr bool kHasMin = false;
  static constexpr int64_t kCodeBytes = kScaleBlock / 2 * kPanel;
  static constexpr int64_t kStepBytes = kCodeBytes + 4 * kPanel;
  static V scales(const char* p) { return f16_at(p); }
  static V weight(const char* block, int k, int i, V scale, V) {
    return Simd::mul(float4_at(block, k, i), scale);
  }
};

// The same with scales for kRun blocks of codes, which come first.
template <class Panel, int kRun>
struct LongPanel : Panel {
  static constexpr int kStep = kRun * Panel::kStep;
  static constexpr int64_t kCodeBytes = kRun * Panel::kCodeBytes;
  static constexpr int64_t kStepBytes = kCodeBytes + Panel::kStepBytes - Panel::kCodeBytes;
};
// The codes of input k, of which `run` are the blocks with the same scales.
template <class Panel>
inline const char* codes_at(const char* run, int64_t k) {
  return run + k % Panel::kStep / kScaleBlock * (Panel::kCodeBytes * kScaleBlock / Panel::kStep);
}

template <class Panel>
inline V scale_of(const char* block, int part, int i) {
  return Panel::scales(block + Panel::kCodeBytes +
                       (part * kPanel + i * kWidth) * Panel::kScaleBytes);
}
template <class Panel>
inline V min_of(const char* block, int part, int i) {
  if constexpr (!Panel::kHasMin) return Simd::zero();
  return Panel::scales(block + Panel::kCodeBytes +
                       ((Panel::kParts + part) * kPanel + i * kWidth) * 2);
}

template <class Panel>
inline void widen_blocks(float* dst, const char* panel, int64_t k) {
  for (int64_t done = 0; done < k; done += kScaleBlock) {
    const char* run = panel + done / Panel::kStep * Panel::kStepBytes;
    const char* codes = codes_at<Panel>(run, done);
    constexpr int64_t kAhead32 = Panel::kStepBytes * kScaleBlock / Panel::kStep;
    for (int b = 0; b < kAhead32; b += 64) __builtin_prefetch(codes + kAhead + b, 0, 2);
    for (int part = 0; part < Panel::kParts; ++part) {
      constexpr int kInputs = kScaleBlock / Panel::kParts;
      for (int i = 0; i < kVectors; ++i) {
        const V scale = scale_of<Panel>(run, part, i), min = min_of<Panel>(run, part, i);
        for (int s = part * kInputs; s < (part + 1) * kInputs; ++s) {
          Simd::store(dst + (done + s) * kPanel + i * kWidth,
                      Panel::weight(codes, s, i, scale, min));
        }
      }
    }
  }
}

// One row, one k block, P panels.
template <class Panel, int P>
inline void row_block(const TileBlock& t) {
  V acc[1][P * kVectors];
  for (int i = 0; i < P * kVectors; ++i) acc[0][i] = Simd::zero();
  for (int64_t k = 0; k < t.k; k += kScaleBlock) {
    const int64_t at = k / Panel::kStep * Panel::kStepBytes;
    const int64_t n = t.k - k < kScaleBlock ? t.k - k : kScaleBlock;
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      constexpr int64_t kAhead32 = Panel::kStepBytes * kScaleBlock / Panel::kStep;
      for (int b = 0; b < kAhead32; b += 64)
        __builtin_prefetch(codes_at<Panel>(t.w[p] + at, k) + kAhead + b, 0, 2);
    }
    for (int part = 0; part < Panel::kParts; ++part) {
      constexpr int kInputs = kScaleBlock / Panel::kParts;
      V scale[P * kVectors], min[P * kVectors];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) {
          scale[p * kVectors + i] = scale_of<Panel>(t.w[p] + at, part, i);
          min[p * kVectors + i] = min_of<Panel>(t.w[p] + at, part, i);
        }
      }
      const int64_t end = n < (part + 1) * kInputs ? n : (part + 1) * kInputs;
      for (int s = part * kInputs; s < end; ++s) {
        const V x = Simd::set(t.a[k + s]);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
          for (int i = 0; i < kVectors; ++i) {
            V& sum = acc[0][p * kVectors + i];
            sum = Simd::fma(x,
                            Panel::weight(codes_at<Panel>(t.w[p] + at, k), s, i,
                                          scale[p * kVectors + i], min[p * kVectors + i]),
                            sum);
          }
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
  t.gemm[kCodedInt8Weights] = dequant_gemm<CodedInt8Panel>;
  t.gemm[kCodedInt4Weights] = dequant_gemm<CodedInt4Panel>;
  t.gemm[kCodedInt4MinimaWeights] = dequant_gemm<CodedInt4MinimaPanel>;
  t.gemm[kCodedInt8HalvesWeights] = dequant_gemm<CodedInt8HalvesPanel>;
  t.gemm[kCodedInt6MinimaWeights] = dequant_gemm<CodedInt6MinimaPanel>;
  t.gemm[kCodedInt6HalvesWeights] = dequant_gemm<CodedInt6HalvesPanel>;
  t.gemm[kCodedFloat4Weights] = dequant_gemm<CodedFloat4Panel>;
  t.gemm[kCodedFloat4HalvesWeights] = dequant_gemm<CodedFloat4HalvesPanel>;
  t.gemm[kCodedInt8By64Weights] = dequant_gemm<LongPanel<CodedInt8Panel, 2>>;
  t.gemm[kCodedInt8By128Weights] = dequant_gemm<LongPanel<CodedInt8Panel, 4>>;
  t.gemm[kCodedInt4By64Weights] = dequant_gemm<LongPanel<CodedInt4Panel, 2>>;
  t.gemm[kCodedInt4By128Weights] = dequant_gemm<LongPanel<CodedInt4Panel, 4>>;
  t.gemm[kCodedInt4MinimaBy64Weights] = dequant_gemm<LongPanel<CodedInt4MinimaPanel, 2>>;
  t.gemm[kCodedInt4MinimaBy128Weights] = dequant_gemm<LongPanel<CodedInt4MinimaPanel, 4>>;
  return t;
}

}  // namespace
}  // namespace inferd::cpu
