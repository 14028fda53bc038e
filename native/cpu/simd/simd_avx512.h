// The vector face of AVX-512 (F, BW, VL, DQ): what the *_kernel.h bodies are written over. Included
// by kernels_avx512.cpp and kernels_avx512vnni.cpp only.
//
// 32 registers of 16 floats: a matrix tile of 12 rows x 2 vectors keeps 24 sums, 2 weights and a
// broadcast in registers.
#pragma once
// GCC 12 warns about the "undefined" operands of its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

namespace inferd::cpu {
namespace {

struct Simd {
  using V = __m512;
  using Words = __m512i;
  static constexpr int kWidth = 16;
  static constexpr int kPanelVectors = 2;
  static constexpr int kTileRows = 12;
  // Vectors of the value sums of four queries kept in registers.
  static constexpr int kValueVectors = 4;

  static V zero() { return _mm512_setzero_ps(); }
  static V set(float x) { return _mm512_set1_ps(x); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static V load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store_n(float* p, V v, int n) { _mm512_mask_storeu_ps(p, mask(n), v); }
  static V load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static V load_bf16(const uint16_t* p) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
  static void store_f16(uint16_t* p, V v) {
    const __m256i h = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
  }
  static void store_bf16(uint16_t* p, V v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i top = _mm512_srli_epi32(_mm512_mask_mov_epi32(up, nan, quiet), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(top));
  }
  // Bytes, and their lower and upper halves, as floats.
  static V load_u8(const uint8_t* p) { return _mm512_cvtepi32_ps(bytes(p)); }
  static V load_low4(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(bytes(p), _mm512_set1_epi32(15)));
  }
  static V load_high4(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(bytes(p), 4));
  }
  // Twice the numbers e2m1 in the lower or the upper halves of bytes.
  static V load_float4(const uint8_t* p, bool upper) {
    const __m128i loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i codes =
        _mm_and_si128(upper ? _mm_srli_epi16(loaded, 4) : loaded, _mm_set1_epi8(15));
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_shuffle_epi8(twice, codes)));
  }
  // Powers of two, by their exponents (e8m0); 0 for the least.
  static V load_powers(const uint8_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(bytes(p), 23));
  }
  // Two bits of each byte, those at `shift`.
  static V load_bits2(const uint8_t* p, int shift) {
    const __m512i bits = _mm512_srl_epi32(bytes(p), _mm_cvtsi32_si128(shift));
    return _mm512_cvtepi32_ps(_mm512_and_si512(bits, _mm512_set1_epi32(3)));
  }
  // 32 numbers e4m3, which are not NaN, times 2^-8: moved into a half float, whose exponents are
  // greater by 8.
  static void load_float8(const void* p, V* w) {
    const __m512i words = _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    const __m512i halves = _mm512_and_si512(_mm512_slli_epi16(words, 7),
                                            _mm512_set1_epi16(static_cast<short>(0xbfff)));
    w[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    w[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
  }
  // Numbers e4m3, NaN among them.
  static V load_e4m3(const uint8_t* p) {
    const __m256i words =
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i most = _mm256_set1_epi16(0x3f80);
    const __m256i halves =
        _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(-0x4001));
    const __m256i size = _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
    const __m256i nan = _mm256_slli_epi16(_mm256_cmpeq_epi16(size, most), 10);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(halves, nan)), set(256.0f));
  }
  static V load_i8(const int8_t* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  // Pairs of bf16 in 32-bit words: the first and the second of each pair as floats.
  static Words load_words(const void* p) { return _mm512_loadu_si512(p); }
  static V first_bf16(Words w) { return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)); }
  static V second_bf16(Words w) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  // b where a is NaN.
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V min(V a, V b) { return _mm512_min_ps(a, b); }
  static V round(V a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // a * 2^n for integral n.
  static V scale2(V a, V n) { return _mm512_scalef_ps(a, n); }
  static V zero_where_less(V a, V x, float limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, set(limit), _CMP_NLT_UQ), a);
  }
  static float sum(V a) { return _mm512_reduce_add_ps(a); }
  static float largest(V a) { return _mm512_reduce_max_ps(a); }
  static int count_greater(V a, V b) {
    return __builtin_popcount(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ));
  }
  static int count_at_least(V a, V b) {
    return __builtin_popcount(_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ));
  }
  static bool any_equal(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ) != 0; }

  // Lane i of the result is the sum of the lanes of a[i].
  static V sum_each(const V* a) {
    const V s = sum_lanes(sum_quads(a), sum_quads(a + 4));
    const V t = sum_lanes(sum_quads(a + 8), sum_quads(a + 12));
    return sum_lanes(s, t);
  }

 private:
  static __m512i bytes(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static __mmask16 mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  // Four vectors -> in each 128-bit lane the four partial sums of that lane.
  static V sum_quads(const V* a) {
    const V s = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    const V t = _mm512_add_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
    const __m512d sd = _mm512_castps_pd(s), td = _mm512_castps_pd(t);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(sd, td)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(sd, td)));
  }
  // Adds neighbouring 128-bit lanes: [a0+a1, a2+a3, b0+b1, b2+b3].
  static V sum_lanes(V a, V b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
};

}  // namespace
}  // namespace inferd::cpu
