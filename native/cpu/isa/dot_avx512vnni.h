// The byte dot products of AVX-512 VNNI for code_kernel.h. Included by kernels_avx512vnni.cpp only,
// behind simd_avx512.h.
//
// vpdpbusd multiplies unsigned by signed bytes: weights are the unsigned side. What their codes are
// off by is taken back through the sum of the row's codes, which the sums start from.
#pragma once
#include "cpu/isa/code_steps.h"
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

struct Dot {
  using Codes = __m512i;
  static constexpr int kGroup = 4, kCodeBytes = 64;
  static constexpr int kRows = 6;  // 12 integer and 12 float sums, weights and scales in registers
  // Float sums of more rows wait in memory. Eight rows in one tile read and take apart the weights
  // once: 26 instead of 21 GB/s of Q8_0 a core, 23 instead of 20 of Q4_K (Zen 5).
  static constexpr int kMostRows = 8;

  static Codes load8(const char* p) { return _mm512_loadu_si512(p); }
  static Codes load_low4(const char* p) {
    return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(15));
  }
  static Codes load_high4(const char* p) {
    const __m512i bytes = _mm512_loadu_si512(p);
    return _mm512_and_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
  }

  // Of codes that are 8 too large: Panel::kOffset takes it back.
  static Codes load_low4_of8(const char* p) { return load_low4(p); }
  static Codes load_high4_of8(const char* p) { return load_high4(p); }

  // With two more upper bits, those at `shift` of the bytes at `p`.
  static Codes with_high2(Codes low, const char* p, int shift) {
    const __m512i bytes = _mm512_loadu_si512(p);
    const __m512i high = shift < 4 ? _mm512_slli_epi16(bytes, static_cast<unsigned int>(4 - shift))
                                   : _mm512_srli_epi16(bytes, static_cast<unsigned int>(shift - 4));
    return _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(0x30)));
  }
  // Of codes of 4 bits: twice the numbers e2m1, 12 too large.
  static constexpr int kFloat4Offset = 12;
  static Codes of_float4(Codes codes) {
    const __m128i twice = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(twice), codes);
  }
  // Of codes that are 32 too large.
  static Codes of32(Codes codes) { return codes; }

  template <int R>
  struct Sums {
    __m512i sums[R][kVectors];

    template <class Panel>
    void start(const int32_t* row_sums) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          sums[r][i] = Panel::kOffset == 0 ? _mm512_setzero_si512()
                                           : _mm512_set1_epi32(-Panel::kOffset * row_sums[r]);
    }
    template <class Panel>
    void add(const char* block, int group, const char* rows) {
      Codes weights[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) weights[i] = Panel::load(block, group, i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        int32_t four;
        __builtin_memcpy(&four, rows + r * 4, 4);
        const __m512i broadcast = _mm512_set1_epi32(four);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          sums[r][i] = _mm512_dpbusd_epi32(sums[r][i], weights[i], broadcast);
      }
    }
    template <class Panel>
    V at(int r, int i) const {
      return _mm512_cvtepi32_ps(sums[r][i]);
    }
  };

  static void load_block(const float* x, int64_t n, V (&values)[kBlockVectors]) {
    const __mmask32 lanes = n >= kScaleBlock ? ~0u : (1u << n) - 1u;
    for (int i = 0; i < kBlockVectors; ++i)
      values[i] = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> (16 * i)), x + 16 * i);
  }
  // The largest magnitude. Magnitudes are compared as bits, so that a NaN or an infinity makes the
  // scale one and with it all products of the block.
  static float largest_of(const V (&x)[kBlockVectors]) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512i top = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x[0]), magnitude),
                                         _mm512_and_si512(_mm512_castps_si512(x[1]), magnitude));
    return __builtin_bit_cast(float, _mm512_reduce_max_epu32(top));
  }
  // Symmetric, `steps` to the largest magnitude.
  static QuantizedBlock encode(const V (&x)[kBlockVectors], float largest, float steps) {
    const V inverse = Simd::set(largest > 0 ? steps / largest : 0.0f);
    const __m512i codes_a = _mm512_cvtps_epi32(Simd::mul(x[0], inverse));
    const __m512i codes_b = _mm512_cvtps_epi32(Simd::mul(x[1], inverse));
    QuantizedBlock q;
    q.scale = largest / steps;
    // In one piece, as it is read again at once.
    const __m256i bytes = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm512_cvtsepi32_epi8(codes_a)), _mm512_cvtsepi32_epi8(codes_b), 1);
    _mm256_store_si256(reinterpret_cast<__m256i*>(q.codes), bytes);
    const __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
    const __m128i pairs =
        _mm_hadd_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    const __m128i halves = _mm_hadd_epi32(pairs, pairs);
    q.sums[0] = static_cast<int16_t>(_mm_cvtsi128_si32(halves));
    q.sums[1] = static_cast<int16_t>(_mm_extract_epi32(halves, 1));
    return q;
  }

  // Chains of dot products that depend on themselves alone; see limits_kernel.h.
  using Chain = __m512i;
  static constexpr int64_t kChainProducts = 64;
  static Chain chain(int start) { return _mm512_set1_epi32(start); }
  static Chain chain_step(Chain c) {
    return _mm512_dpbusd_epi32(c, _mm512_set1_epi8(3), _mm512_set1_epi8(-1));
  }
  static int64_t chain_sum(Chain c) { return _mm512_reduce_add_epi32(c); }
};

}  // namespace
}  // namespace inferd::cpu
