// Sums of products of e4m3 codes, and the scales that make them sums of products of numbers: what
// both GEMMs of Hopper share. A thread holds, of every 8 columns, the pair 2 t of rows g and g + 8.
#pragma once
#include "cuda/device/hopper_cluster.cuh"
#include "cuda/gemm/gemm_codes_view.h"

namespace inferd::cuda {

struct Float8Shape {
  int32_t m, n;
  bool gated;  // half of the columns of a tile are rows n, n + 1, .. of w
};

#ifdef INFERD_HOPPER

// Of 128 of k: of rows g and g + 8 of x; of each half of the columns, up to where a block of w ends
// and from there on.
struct Float8Factors {
  float x[2], w[2][2];
};

// A tile of `kColumns` rows of w, as one thread sees it.
template <int kColumns>
struct Float8Tile {
  static constexpr int kFragments = kColumns / 8;
  static constexpr int kBlockRows = 128;
  const CodesView& codes;
  const Float8Shape shape;
  const int32_t token;  // of row g
  int32_t first[2];     // row of w of the first column of each half
  int32_t edge[2];      // columns of a half before the next block of w

  // `first_column`: of y.
  __device__ Float8Tile(const CodesView& view, const Float8Shape& of, int32_t token,
                        int32_t first_column)
      : codes(view), shape(of), token(token) {
    first[0] = first_column;
    first[1] = shape.gated ? shape.n + first_column : first_column + kColumns / 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) edge[half] = kBlockRows - first[half] % kBlockRows;
  }

  // `block`: of 128 of k.
  __device__ Float8Factors factors(int32_t block) const {
    Float8Factors f = {};
    if (block >= codes.across) return f;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (token + h * 8 < shape.m)
        f.x[h] = codes.x_scales[static_cast<int64_t>(block) * shape.m + token + h * 8];
    }
    const int32_t last = ((shape.gated ? 2 * shape.n : shape.n) - 1) / kBlockRows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        const int32_t row = min(first[half] / kBlockRows + next, last);
        f.w[half][next] = codes.w_scales[static_cast<int64_t>(row) * codes.across + block];
      }
    }
    return f;
  }

  __device__ void add_scaled(float (&sums)[kColumns / 2], const float (&part)[kColumns / 2],
                             const Float8Factors& f) const {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      const int half = i * 8 >= kColumns / 2, column = i * 8 - half * (kColumns / 2);
      const float w = column < edge[half] ? f.w[half][0] : f.w[half][1];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[i * 4 + e] = fmaf(part[i * 4 + e], f.x[e / 2] * w, sums[i * 4 + e]);
    }
  }

  // By a scale of each row of x and of w.
  template <int kCount>
  __device__ void scale_rows(float (&sums)[kCount], int t) const {
    float x[2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      x[h] = token + h * 8 < shape.m ? codes.x_scales[token + h * 8] : 0.f;
    const int32_t rows = shape.gated ? 2 * shape.n : shape.n;
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      const int half = i * 8 >= kColumns / 2;
      const int32_t row = first[half] + i * 8 - half * (kColumns / 2) + t * 2;
      const float low = row < rows ? codes.w_scales[row] : 0.f;
      const float high = row + 1 < rows ? codes.w_scales[row + 1] : 0.f;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sums[i * 4 + h * 2] *= x[h] * low;
        sums[i * 4 + h * 2 + 1] *= x[h] * high;
      }
    }
  }
};

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
