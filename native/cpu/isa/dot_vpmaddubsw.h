// The byte dot products of AVX2 and of AVX-512 without VNNI for code_kernel.h, over the byte
// vectors `Bytes` (bytes_avx2.h, bytes_avx512.h).
//
// vpmaddubsw multiplies unsigned by signed bytes and adds two neighbours in 16 bits, where it
// saturates. How many groups of inputs may be added up in 16 bits before vpmaddwd widens them
// depends on the largest code: all of a block of 4-bit codes, as 8 x 2 x 127 x 15 is less than
// 2^15; two of 6 bits and of fp4. Codes of 8 bits would saturate with one: they are multiplied as
// magnitudes, by activations that took their signs, and each group is widened, as 2 x 127 x 128 is
// less than 2^15.
//
// So the products of a vector take two instructions of 4 bits, two and a half of 6 and four of 8. A
// core of Zen 4 at 3.7 GHz, weights in the cache, billions of products a second of 4-bit codes,
// fp4, 6 bits and 8: AVX2 130, 95, 73, 67, AVX-512 135, 118, 98, 81. Weights widened to floats
// (dequant_kernel.h), of any format, did 55 with 510 rows. At one row 35 to 56 and 37 to 59 GB/s of
// weights, where widening did 7 to 20.
#pragma once
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

struct Dot : Bytes {
  static constexpr int kGroup = 4;

  // Groups of inputs whose products may be added up in 16 bits.
  template <class Panel>
  static constexpr int kNarrow = 32767 / (2 * 127 * Panel::kLargest);
  template <class Panel>
  static constexpr bool kSigned = kNarrow<Panel> == 0;
  template <class Panel>
  static constexpr bool kWhole = kNarrow<Panel> >= kScaleBlock / kGroup / Panel::kParts;

  // GCC would mix the groups of a block before it gives out registers, and move more vectors to and
  // from the stack than it multiplies: it does not look past this.
  static void pin(Codes& sums) { asm("" : "+v"(sums)); }

  // Of all groups in 16 bits, where those of a part can be added up there; else in 32.
  template <int R>
  struct Sums {
    Codes sums[R][kVectors];
    int32_t above[R];  // what 16-bit sums are too large by

    template <class Panel>
    void start(const int32_t* row_sums) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int32_t off = kSigned<Panel> ? 0 : Panel::kOffset * row_sums[r];
        above[r] = off;
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          sums[r][i] = kWhole<Panel> || kSigned<Panel> || Panel::kOffset == 0 ? none() : set(-off);
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
      if constexpr (!kWhole<Panel>) return to_floats(sums[r][i]);
      const Codes all = fours(sums[r][i]);
      return to_floats(Panel::kOffset == 0 ? all : subtract(all, set(above[r])));
    }

   private:
    template <class Panel>
    void add_narrow(const char* block, int group, const char* rows) {
      Codes weights[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) weights[i] = Panel::load(block, group, i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Codes x = row_codes(rows + r * kGroup);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
          sums[r][i] = add_pairs(sums[r][i], pairs(weights[i], x));
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
          const Codes both =
              add_pairs(pairs(first, row_codes(x - R * kGroup)), pairs(second, row_codes(x)));
          sums[r][i] = Bytes::add(sums[r][i], fours(both));
          pin(sums[r][i]);
        }
      }
    }
    template <class Panel>
    void add_signed(const char* block, int group, const char* rows) {
      Codes weights[kVectors];
      Signs of_weights[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        const Codes codes = less128(Panel::load(block, group, i));
        weights[i] = magnitudes(codes);
        of_weights[i] = signs(codes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Codes x = row_codes(rows + r * kGroup);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
          const Codes both = pairs(weights[i], with_signs(x, of_weights[i]));
          sums[r][i] = Bytes::add(sums[r][i], fours(both));
          pin(sums[r][i]);
        }
      }
    }
  };

  // As of codes of 4 bits, which take the fewest instructions.
  using Chain = Codes;
  static constexpr int64_t kChainProducts = kCodeBytes;
  static Chain chain(int start) { return set(start); }
  static Chain chain_step(Chain c) {
    c = add_pairs(c, pairs(c, set(-1)));
    pin(c);
    return c;
  }
  static int64_t chain_sum(Chain c) { return sum(c); }
};

}  // namespace
}  // namespace inferd::cpu
