// The vector face of AVX2 with FMA and F16C: what the *_kernel.h bodies are written over. Included
// by kernels_avx2.cpp and kernels_avxvnni.cpp only.
//
// 16 registers of 8 floats: a matrix tile of 6 rows x 2 vectors keeps 12 sums, 2 weights and a
// broadcast in registers.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace inferd::cpu {
namespace {

struct Simd {
  using V = __m256;
  using Words = __m256i;
  static constexpr int kWidth = 8;
  static constexpr int kPanelVectors = 2;
  static constexpr int kTileRows = 6;
  // Vectors of the value sums of four queries kept in registers.
  static constexpr int kValueVectors = 2;

  static V zero() { return _mm256_setzero_ps(); }
  static V set(float x) { return _mm256_set1_ps(x); }
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static V load_n(const float* p, int n) { return _mm256_maskload_ps(p, mask(n)); }
  static void store_n(float* p, V v, int n) { _mm256_maskstore_ps(p, mask(n), v); }
  static V load_f16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static V load_bf16(const uint16_t* p) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
  static void store_f16(uint16_t* p, V v) {
    const __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), h);
  }
  static void store_bf16(uint16_t* p, V v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i top = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
    const __m128i low = _mm256_castsi256_si128(top), high = _mm256_extracti128_si256(top, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packus_epi32(low, high));
  }
  // Bytes, and their lower and upper halves, as floats.
  static V load_u8(const uint8_t* p) { return _mm256_cvtepi32_ps(bytes(p)); }
  static V load_low4(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_and_si256(bytes(p), _mm256_set1_epi32(15)));
  }
  static V load_high4(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(bytes(p), 4));
  }
  // Twice the numbers e2m1 in the lower or the upper halves of bytes.
  static V load_float4(const uint8_t* p, bool upper) {
    const __m128i loaded = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i codes =
        _mm_and_si128(upper ? _mm_srli_epi16(loaded, 4) : loaded, _mm_set1_epi8(15));
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_shuffle_epi8(twice, codes)));
  }
  // Powers of two, by their exponents (e8m0); 0 for the least.
  static V load_powers(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(bytes(p), 23));
  }
  // Two bits of each byte, those at `shift`.
  static V load_bits2(const uint8_t* p, int shift) {
    const __m256i bits = _mm256_srl_epi32(bytes(p), _mm_cvtsi32_si128(shift));
    return _mm256_cvtepi32_ps(_mm256_and_si256(bits, _mm256_set1_epi32(3)));
  }
  // 16 numbers e4m3, which are not NaN, times 2^-8: moved into a half float, whose exponents are
  // greater by 8.
  static void load_float8(const void* p, V* w) {
    const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(words, 7),
                                            _mm256_set1_epi16(static_cast<short>(0xbfff)));
    w[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    w[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
  }
  // Numbers e4m3, NaN among them.
  static V load_e4m3(const uint8_t* p) {
    const __m128i words = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i most = _mm_set1_epi16(0x3f80);
    const __m128i halves = _mm_and_si128(_mm_slli_epi16(words, 7), _mm_set1_epi16(-0x4001));
    const __m128i size = _mm_and_si128(halves, _mm_set1_epi16(0x7fff));
    const __m128i nan = _mm_slli_epi16(_mm_cmpeq_epi16(size, most), 10);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(halves, nan)), set(256.0f));
  }
  static V load_i8(const int8_t* p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // Pairs of bf16 in 32-bit words: the first and the second of each pair as floats.
  static Words load_words(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static V first_bf16(Words w) { return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)); }
  static V second_bf16(Words w) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V div(V a, V b) { return _mm256_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  // b where a is NaN.
  static V max(V a, V b) { return _mm256_max_ps(a, b); }
  static V min(V a, V b) { return _mm256_min_ps(a, b); }
  static V round(V a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // a * 2^n for integral n of at least -126 and at most 127.
  static V scale2(V a, V n) {
    const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
  }
  static V zero_where_less(V a, V x, float limit) {
    return _mm256_and_ps(_mm256_cmp_ps(x, set(limit), _CMP_NLT_UQ), a);
  }
  static float sum(V a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static float largest(V a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  static int count_greater(V a, V b) {
    return __builtin_popcount(
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ))));
  }
  static int count_at_least(V a, V b) {
    return __builtin_popcount(
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ))));
  }
  static bool any_equal(V a, V b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) != 0;
  }

  // Lane i of the result is the sum of the lanes of a[i].
  static V sum_each(const V* a) {
    const V s = sum_quads(a), t = sum_quads(a + 4);
    return _mm256_add_ps(_mm256_permute2f128_ps(s, t, 0x20), _mm256_permute2f128_ps(s, t, 0x31));
  }

 private:
  static __m256i bytes(const uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static __m256i mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  // Four vectors -> in each 128-bit lane the four partial sums of that lane.
  static V sum_quads(const V* a) {
    return _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
  }
};

}  // namespace
}  // namespace inferd::cpu
