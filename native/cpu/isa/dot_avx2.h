// The byte dot products of AVX2 for code_kernel.h, and of AVX-VNNI where the file is compiled for
// it. Included by kernels_avx2.cpp and kernels_avxvnni.cpp only, behind simd_avx2.h.
//
// AVX-VNNI has vpdpbusd, as dot_avx512vnni.h. AVX2 has vpmaddubsw, which multiplies unsigned by
// signed bytes and adds two neighbours in 16 bits, where it saturates. How many groups of inputs
// may be added up in 16 bits before vpmaddwd widens them depends on the largest code: all of a
// block of 4-bit codes, as 8 x 2 x 127 x 15 is less than 2^15; two of 6 bits and of fp4. Codes of
// 8 bits would saturate with one: they are multiplied as magnitudes, by activations that took their
// signs, and each group is widened, as 2 x 127 x 128 is less than 2^15.
//
// So 32 products take two instructions of 4 bits, three of 6 and four of 8. A core of Zen 4 at 3.7
// GHz does 130 billion products a second of 4-bit codes, 93 of fp4, 73 of 6 bits and 67 of 8, where
// widening weights to floats (dequant_kernel.h) did 53 at best, and 7 to 20 GB/s of weights at one
// row in place of 35 to 56.
#pragma once
#include "cpu/isa/code_steps.h"
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

struct DotBase {
  using Codes = __m256i;
  static constexpr int kGroup = 4, kCodeBytes = 32;
  static constexpr int kRows = 6;  // 12 integer sums in registers; the float sums wait in memory
  static constexpr int kMostRows = kRows;

  static Codes bytes(const char* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Codes load_low4(const char* p) { return _mm256_and_si256(bytes(p), _mm256_set1_epi8(15)); }
  static Codes load_high4(const char* p) {
    return _mm256_and_si256(_mm256_srli_epi16(bytes(p), 4), _mm256_set1_epi8(15));
  }
  // Of codes that are 8 too large: Panel::kOffset takes it back.
  static Codes load_low4_of8(const char* p) { return load_low4(p); }
  static Codes load_high4_of8(const char* p) { return load_high4(p); }

  // With two more upper bits, those at `shift` of the bytes at `p`.
  static Codes with_high2(Codes low, const char* p, int shift) {
    const __m256i high =
        shift < 4 ? _mm256_slli_epi16(bytes(p), 4 - shift) : _mm256_srli_epi16(bytes(p), shift - 4);
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

  // The codes of a row's group, for every output.
  static __m256i row_codes(const char* p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
  }

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
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const __m128i eights =
        _mm_hadd_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    const __m128i halves = _mm_hadd_epi32(eights, eights);
    q.sums[0] = static_cast<int16_t>(_mm_cvtsi128_si32(halves));
    q.sums[1] = static_cast<int16_t>(_mm_extract_epi32(halves, 1));
    return q;
  }

  using Chain = __m256i;
  static constexpr int64_t kChainProducts = 32;
  static Chain chain(int start) { return _mm256_set1_epi32(start); }
  static int64_t chain_sum(Chain c) {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), c);
    int64_t sum = 0;
    for (const int32_t lane : lanes) sum += lane;
    return sum;
  }
};

#if defined(__AVXVNNI__)

struct Dot : DotBase {
  static Codes load8(const char* p) { return bytes(p); }

  template <int R>
  struct Sums {
    __m256i sums[R][kVectors];

    template <class Panel>
    void start(const int32_t* row_sums) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          sums[r][i] = Panel::kOffset == 0 ? _mm256_setzero_si256()
                                           : _mm256_set1_epi32(-Panel::kOffset * row_sums[r]);
    }
    template <class Panel>
    void add(const char* block, int group, const char* rows) {
      Codes weights[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) weights[i] = Panel::load(block, group, i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m256i x = row_codes(rows + r * kGroup);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          sums[r][i] = _mm256_dpbusd_avx_epi32(sums[r][i], weights[i], x);
      }
    }
    template <class Panel>
    V at(int r, int i) const {
      return _mm256_cvtepi32_ps(sums[r][i]);
    }
  };

  static Chain chain_step(Chain c) {
    return _mm256_dpbusd_avx_epi32(c, _mm256_set1_epi8(3), _mm256_set1_epi8(-1));
  }
};

#else

struct Dot : DotBase {
  // Signed: what they are off by is taken back here.
  static Codes load8(const char* p) { return _mm256_xor_si256(bytes(p), _mm256_set1_epi8(-128)); }

  // Groups of inputs whose products may be added up in 16 bits.
  template <class Panel>
  static constexpr int kNarrow = 32767 / (2 * 127 * Panel::kLargest);
  template <class Panel>
  static constexpr bool kSigned = kNarrow<Panel> == 0;
  template <class Panel>
  static constexpr bool kWhole = kNarrow<Panel> >= kScaleBlock / kGroup / Panel::kParts;

  static __m256i widened(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  // GCC would mix the groups of a block before it gives out registers, and move more vectors to and
  // from the stack than it multiplies: it does not look past this.
  static void pin(__m256i& sums) { asm("" : "+x"(sums)); }

  // Of all groups in 16 bits, where those of a part can be added up there; else in 32.
  template <int R>
  struct Sums {
    __m256i sums[R][kVectors];
    int32_t above[R];  // what 16-bit sums are too large by

    template <class Panel>
    void start(const int32_t* row_sums) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int32_t off = kSigned<Panel> ? 0 : Panel::kOffset * row_sums[r];
        above[r] = off;
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          sums[r][i] = kWhole<Panel> || kSigned<Panel> || Panel::kOffset == 0
                           ? _mm256_setzero_si256()
                           : _mm256_set1_epi32(-off);
      }
    }
    template <class Panel>
    void add(const char* block, int group, const char* rows) {
      if constexpr (kWhole<Panel>) {
        add_narrow<Panel>(block, group, rows);
      } else if constexpr (kSigned<Panel>) {
        add_signed<Panel>(block, group, rows);
      } else {
        static_assert(kNarrow<Panel> >= 2);
        if (group % 2 == 1) add_two<Panel>(block, group, rows);
      }
    }
    template <class Panel>
    V at(int r, int i) const {
      if constexpr (!kWhole<Panel>) return _mm256_cvtepi32_ps(sums[r][i]);
      const __m256i all = widened(sums[r][i]);
      return _mm256_cvtepi32_ps(
          Panel::kOffset == 0 ? all : _mm256_sub_epi32(all, _mm256_set1_epi32(above[r])));
    }

   private:
    template <class Panel>
    void add_narrow(const char* block, int group, const char* rows) {
      Codes weights[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) weights[i] = Panel::load(block, group, i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m256i x = row_codes(rows + r * kGroup);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
          sums[r][i] = _mm256_add_epi16(sums[r][i], _mm256_maddubs_epi16(weights[i], x));
          pin(sums[r][i]);
        }
      }
    }
    // This group and the one before it. Four at a time, as fp4 would allow, are no faster.
    template <class Panel>
    void add_two(const char* block, int group, const char* rows) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        const Codes first = Panel::load(block, group - 1, i), second = Panel::load(block, group, i);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const char* x = rows + r * kGroup;
          const __m256i pairs =
              _mm256_add_epi16(_mm256_maddubs_epi16(first, row_codes(x - R * kGroup)),
                               _mm256_maddubs_epi16(second, row_codes(x)));
          sums[r][i] = _mm256_add_epi32(sums[r][i], widened(pairs));
          pin(sums[r][i]);
        }
      }
    }
    template <class Panel>
    void add_signed(const char* block, int group, const char* rows) {
      Codes weights[kVectors], magnitudes[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        weights[i] = Panel::load(block, group, i);
        magnitudes[i] = _mm256_abs_epi8(weights[i]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m256i x = row_codes(rows + r * kGroup);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
          const __m256i pairs =
              _mm256_maddubs_epi16(magnitudes[i], _mm256_sign_epi8(x, weights[i]));
          sums[r][i] = _mm256_add_epi32(sums[r][i], widened(pairs));
          pin(sums[r][i]);
        }
      }
    }
  };

  // As of codes of 4 bits, which take the fewest instructions.
  static Chain chain_step(Chain c) {
    c = _mm256_add_epi16(c, _mm256_maddubs_epi16(c, _mm256_set1_epi8(-1)));
    pin(c);
    return c;
  }
};

#endif

}  // namespace
}  // namespace inferd::cpu
