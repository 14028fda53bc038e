// The scales of a product of 8-bit codes, as kernels get them.
#pragma once
#include <cstdint>

#include "cuda/gemm/gemm_args.h"

namespace inferd::cuda {

struct CodesView {
  const float* x_scales = nullptr;  // [m], or [across, m]
  const float* w_scales = nullptr;  // [rows], or [rows / 128, across]
  int32_t across = 1;               // blocks of 128 of k
};

inline CodesView codes_view(const GemmArgs& p) {
  return {p.x_scales, static_cast<const float*>(p.w.scales),
          p.w.format.block_cols == 0 ? 1 : (p.k + 127) / 128};
}
// e4m3 codes on both sides, with scales that the GEMMs of Hopper know.
inline bool float8_operands(const GemmArgs& p) {
  return p.x_scales != nullptr && (p.w.format == kFloat8Rows || p.w.format == kFloat8Blocks);
}
// The same operands as 16-bit words, two codes each, which is how they are copied.
inline GemmArgs as_words(const GemmArgs& p) {
  GemmArgs words = p;
  if (p.x_scales == nullptr) return words;
  words.k /= 2;
  words.x_stride /= 2;
  return words;
}

}  // namespace inferd::cuda
