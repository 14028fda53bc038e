// The byte dot products of ARM for code_kernel.h: sdot (dotprod), or the matrix products smmla
// (i8mm), of twice its rate, where the file is compiled for them. Included by kernels_neondot.cpp
// and kernels_neoni8mm.cpp only, behind simd_neon.h.
//
// Both multiply signed bytes: codes of int8 lose their offset as they are loaded, those of int4 are
// small enough as they are.
#pragma once
#include "cpu/isa/code_steps.h"
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

struct DotBase {
  using Codes = int8x16_t;
  static constexpr int kCodeBytes = 16;
  static constexpr int kRows = 6;  // 24 integer sums in registers; the float sums wait in memory
  static constexpr int kMostRows = kRows;

  static uint8x16_t bytes(const char* p) { return vld1q_u8(reinterpret_cast<const uint8_t*>(p)); }
  static Codes load8(const char* p) {
    return vreinterpretq_s8_u8(veorq_u8(bytes(p), vdupq_n_u8(128)));
  }
  static Codes load_low4(const char* p) {
    return vreinterpretq_s8_u8(vandq_u8(bytes(p), vdupq_n_u8(15)));
  }
  static Codes load_high4(const char* p) { return vreinterpretq_s8_u8(vshrq_n_u8(bytes(p), 4)); }
  // Of codes that are 8 too large.
  static Codes load_low4_of8(const char* p) { return vsubq_s8(load_low4(p), vdupq_n_s8(8)); }
  static Codes load_high4_of8(const char* p) { return vsubq_s8(load_high4(p), vdupq_n_s8(8)); }

  // With two more upper bits, those at `shift` of the bytes at `p`.
  static Codes with_high2(Codes low, const char* p, int shift) {
    const int8x16_t by = vdupq_n_s8(static_cast<int8_t>(4 - shift));
    const uint8x16_t high = vandq_u8(vshlq_u8(bytes(p), by), vdupq_n_u8(0x30));
    return vorrq_s8(low, vreinterpretq_s8_u8(high));
  }
  // Of codes of 4 bits: twice the numbers e2m1.
  static constexpr int kFloat4Offset = 0;
  static Codes of_float4(Codes codes) {
    static constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return vqtbl1q_s8(vld1q_s8(kTwice), vreinterpretq_u8_s8(codes));
  }
  // Of codes that are 32 too large.
  static Codes of32(Codes codes) { return vsubq_s8(codes, vdupq_n_s8(32)); }

  static void load_block(const float* x, int64_t n, V (&values)[kBlockVectors]) {
    float tail[kScaleBlock] = {};
    if (n < kScaleBlock) {
      for (int64_t i = 0; i < n; ++i) tail[i] = x[i];
      x = tail;
    }
    for (int i = 0; i < kBlockVectors; ++i) values[i] = vld1q_f32(x + 4 * i);
  }
  // The largest magnitude. Magnitudes are compared as bits, so that a NaN or an infinity makes the
  // scale one and with it all products of the block.
  static float largest_of(const V (&x)[kBlockVectors]) {
    uint32x4_t top = vdupq_n_u32(0);
    for (const V& v : x)
      top = vmaxq_u32(top, vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0x7fffffff)));
    return __builtin_bit_cast(float, vmaxvq_u32(top));
  }
  // Symmetric, `steps` to the largest magnitude.
  static QuantizedBlock encode(const V (&x)[kBlockVectors], float largest, float steps) {
    const V inverse = Simd::set(largest > 0 ? steps / largest : 0.0f);
    const auto eight = [&](int i) {
      const int32x4_t low = vcvtnq_s32_f32(Simd::mul(x[i / 4], inverse));
      const int32x4_t high = vcvtnq_s32_f32(Simd::mul(x[i / 4 + 1], inverse));
      return vqmovn_s16(vcombine_s16(vqmovn_s32(low), vqmovn_s32(high)));
    };
    QuantizedBlock q;
    q.scale = largest / steps;
    for (int i = 0; i < kScaleBlock; i += 16) {
      const int8x16_t codes = vcombine_s8(eight(i), eight(i + 8));
      vst1q_s8(q.codes + i, codes);
      q.sums[i / 16] = vaddlvq_s8(codes);
    }
    return q;
  }

  using Chain = int32x4_t;
  static Chain chain(int start) { return vdupq_n_s32(start); }
  static int64_t chain_sum(Chain c) { return vaddlvq_s32(c); }
};

#if defined(__ARM_FEATURE_MATMUL_INT8)

// A product takes two outputs and two rows, eight inputs of each: sums hold pairs of rows in turn.
struct Dot : DotBase {
  static constexpr int kGroup = 8;

  template <int R>
  struct Sums {
    static constexpr int kPairs = (R + 1) / 2;
    int32x4_t sums[kPairs][2 * kVectors];

    template <class Panel>
    void start(const int32_t*) {
#pragma GCC unroll 8
      for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 8
        for (int v = 0; v < 2 * kVectors; ++v) sums[p][v] = vdupq_n_s32(0);
    }
    template <class Panel>
    void add(const char* block, int group, const char* rows) {
      const auto* codes = reinterpret_cast<const int8_t*>(rows);
      int8x16_t x[kPairs];
#pragma GCC unroll 8
      for (int p = 0; p < kPairs; ++p) {
        x[p] = 2 * p + 1 < R ? vld1q_s8(codes + p * 16)
                             : vcombine_s8(vld1_s8(codes + p * 16), vdup_n_s8(0));
      }
#pragma GCC unroll 8
      for (int v = 0; v < 2 * kVectors; ++v) {
        const Codes weights = Panel::load(block, group, v);
#pragma GCC unroll 8
        for (int p = 0; p < kPairs; ++p) sums[p][v] = vmmlaq_s32(sums[p][v], weights, x[p]);
      }
    }
    template <class Panel>
    V at(int r, int i) const {
      const int32x4_t low = sums[r / 2][2 * i], high = sums[r / 2][2 * i + 1];
      return vcvtq_f32_s32(r % 2 == 0 ? vuzp1q_s32(low, high) : vuzp2q_s32(low, high));
    }
  };

  static constexpr int64_t kChainProducts = 32;
  static Chain chain_step(Chain c) { return vmmlaq_s32(c, vdupq_n_s8(3), vdupq_n_s8(-1)); }
};

#else

struct Dot : DotBase {
  static constexpr int kGroup = 4;

  template <int R>
  struct Sums {
    int32x4_t sums[R][kVectors];

    template <class Panel>
    void start(const int32_t*) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) sums[r][i] = vdupq_n_s32(0);
    }
    template <class Panel>
    void add(const char* block, int group, const char* rows) {
      Codes weights[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) weights[i] = Panel::load(block, group, i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int8x16_t x =
            vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const int32_t*>(rows) + r));
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) sums[r][i] = vdotq_s32(sums[r][i], weights[i], x);
      }
#if !defined(__clang__)
      // GCC moves nothing past this. Left alone it mixes the groups before it gives out registers,
      // and a block of 8-bit codes and six rows moves 337 vectors to or from the stack, not 95.
      asm volatile("");
#endif
    }
    template <class Panel>
    V at(int r, int i) const {
      return vcvtq_f32_s32(sums[r][i]);
    }
  };

  static constexpr int64_t kChainProducts = 16;
  static Chain chain_step(Chain c) { return vdotq_s32(c, vdupq_n_s8(3), vdupq_n_s8(-1)); }
};

#endif

}  // namespace
}  // namespace inferd::cpu
