// Bytes in vectors of AVX-512: what dot_vpmaddubsw.h and dot_vpdpbusd.h are written over. Included
// by kernels_avx512.cpp and kernels_avx512vnni.cpp only, behind simd_avx512.h.
#pragma once
#include "cpu/isa/code_steps.h"
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

struct Bytes {
  using Codes = __m512i;
  static constexpr int kCodeBytes = 64;
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

  // Integer sums: four bytes' products in each 32 bits, or two in each 16.
  static __m512i none() { return _mm512_setzero_si512(); }
  static __m512i set(int32_t x) { return _mm512_set1_epi32(x); }
  // The codes of a row's group, for every output.
  static __m512i row_codes(const char* p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
  }
#if defined(__AVX512VNNI__)
  static __m512i add_fours(__m512i sums, Codes unsigned_codes, Codes signed_codes) {
    return _mm512_dpbusd_epi32(sums, unsigned_codes, signed_codes);
  }
#endif
  static __m512i pairs(Codes unsigned_codes, Codes signed_codes) {
    return _mm512_maddubs_epi16(unsigned_codes, signed_codes);
  }
  static __m512i add_pairs(__m512i a, __m512i b) { return _mm512_add_epi16(a, b); }
  static __m512i fours(__m512i pairs) { return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)); }
  static __m512i add(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
  static __m512i subtract(__m512i a, __m512i b) { return _mm512_sub_epi32(a, b); }
  static V to_floats(__m512i sums) { return _mm512_cvtepi32_ps(sums); }

  // Codes of 128 too many as signed ones, their magnitudes, and their signs given to others.
  static Codes less128(Codes codes) { return _mm512_xor_si512(codes, _mm512_set1_epi8(-128)); }
  static Codes magnitudes(Codes codes) { return _mm512_abs_epi8(codes); }
  using Signs = __mmask64;
  static Signs signs(Codes codes) { return _mm512_movepi8_mask(codes); }
  static Codes with_signs(Codes codes, Signs signs) {
    return _mm512_mask_sub_epi8(codes, signs, _mm512_setzero_si512(), codes);
  }

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
    const __m256i sums =
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
    const __m128i eights =
        _mm_hadd_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const __m128i halves = _mm_hadd_epi32(eights, eights);
    q.sums[0] = static_cast<int16_t>(_mm_cvtsi128_si32(halves));
    q.sums[1] = static_cast<int16_t>(_mm_extract_epi32(halves, 1));
    return q;
  }

  static int64_t sum(__m512i fours) { return _mm512_reduce_add_epi32(fours); }
};

}  // namespace
}  // namespace inferd::cpu
