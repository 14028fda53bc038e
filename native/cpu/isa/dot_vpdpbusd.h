// The byte dot products of AVX-VNNI and AVX-512 VNNI for code_kernel.h, over the byte vectors
// `Bytes` (bytes_avx2.h, bytes_avx512.h).
//
// vpdpbusd multiplies unsigned by signed bytes and adds four products to 32 bits: weights are the
// unsigned side. What their codes are off by is taken back through the sum of the row's codes,
// which the sums start from.
#pragma once
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

struct Dot : Bytes {
  static constexpr int kGroup = 4;

  template <int R>
  struct Sums {
    Codes sums[R][kVectors];

    template <class Panel>
    void start(const int32_t* row_sums) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          sums[r][i] = Panel::kOffset == 0 ? none() : set(-Panel::kOffset * row_sums[r]);
    }
    template <class Panel>
    void add(const char* block, int group, const char* rows) {
      Codes weights[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) weights[i] = Panel::load(block, group, i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Codes x = row_codes(rows + r * kGroup);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) sums[r][i] = add_fours(sums[r][i], weights[i], x);
      }
    }
    template <class Panel>
    V at(int r, int i) const {
      return to_floats(sums[r][i]);
    }
  };

  using Chain = Codes;
  static constexpr int64_t kChainProducts = kCodeBytes;
  static Chain chain(int start) { return set(start); }
  static Chain chain_step(Chain c) { return add_fours(c, set(0x03030303), set(-1)); }
  static int64_t chain_sum(Chain c) { return sum(c); }
};

}  // namespace
}  // namespace inferd::cpu
