// Bytes in vectors of AVX2: what dot_vpmaddubsw.h and dot_vpdpbusd.h are written over. Included by
// kernels_avx2.cpp and kernels_avxvnni.cpp only, behind simd_avx2.h.
#pragma once
#include "cpu/isa/code_steps.h"
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

struct Bytes {
  using Codes = __m256i;
  static constexpr int kCodeBytes = 32;
  static constexpr int kRows = 6;  // 12 integer sums in registers; the float sums wait in memory
  static constexpr int kMostRows = kRows;

  static Codes load8(const char* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Codes load_low4(const char* p) { return _mm256_and_si256(load8(p), _mm256_set1_epi8(15)); }
  static Codes load_high4(const char* p) {
    return _mm256_and_si256(_mm256_srli_epi16(load8(p), 4), _mm256_set1_epi8(15));
  }
  // Of codes that are 8 too large: Panel::kOffset takes it back.
  static Codes load_low4_of8(const char* p) { return load_low4(p); }
  static Codes load_high4_of8(const char* p) { return load_high4(p); }

  // With two more upper bits, those at `shift` of the bytes at `p`.
  static Codes with_high2(Codes low, const char* p, int shift) {
    const __m256i high =
        shift < 4 ? _mm256_slli_epi16(load8(p), 4 - shift) : _mm256_srli_epi16(load8(p), shift - 4);
    return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
  }
  // Of codes of 4 bits: twice the numbers e2m1, 12 too large.
  static constexpr int kFloat4Offset = 12;
  static Codes of_float4(Codes codes) {
    const __m128i twice = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(twice), codes);
  }
  // Of codes that are 32 too large.
  static Codes of32(Codes codes) { return codes; }

  // Integer sums: four bytes' products in each 32 bits, or two in each 16.
  static __m256i none() { return _mm256_setzero_si256(); }
  static __m256i set(int32_t x) { return _mm256_set1_epi32(x); }
  // The codes of a row's group, for every output.
  static __m256i row_codes(const char* p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
  }
#if defined(__AVXVNNI__)
  static __m256i add_fours(__m256i sums, Codes unsigned_codes, Codes signed_codes) {
    return _mm256_dpbusd_avx_epi32(sums, unsigned_codes, signed_codes);
  }
#endif
  static __m256i pairs(Codes unsigned_codes, Codes signed_codes) {
    return _mm256_maddubs_epi16(unsigned_codes, signed_codes);
  }
  static __m256i add_pairs(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
  static __m256i fours(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  static __m256i add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
  static __m256i subtract(__m256i a, __m256i b) { return _mm256_sub_epi32(a, b); }
  static V to_floats(__m256i sums) { return _mm256_cvtepi32_ps(sums); }

  // Codes of 128 too many as signed ones, their magnitudes, and their signs given to others.
  static Codes less128(Codes codes) { return _mm256_xor_si256(codes, _mm256_set1_epi8(-128)); }
  static Codes magnitudes(Codes codes) { return _mm256_abs_epi8(codes); }
  using Signs = __m256i;
  static Signs signs(Codes codes) { return codes; }
  static Codes with_signs(Codes codes, Signs signs) { return _mm256_sign_epi8(codes, signs); }

  static void load_block(const float* x, int64_t n, V (&values)[kBlockVectors]) {
    for (int i = 0; i < kBlockVectors; ++i) {
      const int64_t left = n - i * kWidth;
      values[i] = left >= kWidth ? Simd::load(x + i * kWidth)
                  : left > 0     ? Simd::load_n(x + i * kWidth, static_cast<int>(left))
                                 : Simd::zero();
    }
  }
  // The largest magnitude. Magnitudes are compared as bits, so that a NaN or an infinity makes the
  // scale one and with it all products of the block.
  static float largest_of(const V (&x)[kBlockVectors]) {
    __m256i top = _mm256_setzero_si256();
    for (const V& v : x)
      top = _mm256_max_epu32(
          top, _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff)));
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xb1));
    return __builtin_bit_cast(float, _mm_cvtsi128_si32(most));
  }
  // Symmetric, `steps` to the largest magnitude.
  static QuantizedBlock encode(const V (&x)[kBlockVectors], float largest, float steps) {
    const V inverse = Simd::set(largest > 0 ? steps / largest : 0.0f);
    __m256i eight[kBlockVectors];
    for (int i = 0; i < kBlockVectors; ++i) eight[i] = _mm256_cvtps_epi32(Simd::mul(x[i], inverse));
    // Packing goes by halves of the vectors: fours of codes are put in order behind it.
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(eight[0], eight[1]),
                                              _mm256_packs_epi32(eight[2], eight[3]));
    const __m256i codes =
        _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    QuantizedBlock q;
    q.scale = largest / steps;
    _mm256_store_si256(reinterpret_cast<__m256i*>(q.codes), codes);
    const __m256i sums = fours(pairs(_mm256_set1_epi8(1), codes));
    const __m128i eights =
        _mm_hadd_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const __m128i halves = _mm_hadd_epi32(eights, eights);
    q.sums[0] = static_cast<int16_t>(_mm_cvtsi128_si32(halves));
    q.sums[1] = static_cast<int16_t>(_mm_extract_epi32(halves, 1));
    return q;
  }

  static int64_t sum(__m256i fours) {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), fours);
    int64_t sum = 0;
    for (const int32_t lane : lanes) sum += lane;
    return sum;
  }
};

}  // namespace
}  // namespace inferd::cpu
