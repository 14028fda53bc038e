// See gemm_codes.h.
#include "cuda/gemm/gemm_codes.h"

#include <algorithm>

#include "cuda/gemm/gemm_kernels.h"
#include "cuda/gemm/small_gemm.h"
#include "cuda/rows/scaled_rows.h"

namespace inferd::cuda {
namespace {

constexpr int64_t kWidenedBytes = 64 << 20;
constexpr int64_t kAlign = 256;
constexpr int32_t kScaleColumns = 128;

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

int64_t scale_bytes(const WeightFormat& format, int64_t m, int64_t k) {
  const int64_t across = format.block_cols == 0 ? 1 : (k + kScaleColumns - 1) / kScaleColumns;
  return m * across * static_cast<int64_t>(sizeof(float));
}

const void* bytes_after(const void* p, int64_t bytes) {
  return p == nullptr ? nullptr : static_cast<const char*>(p) + bytes;
}

int64_t result_bytes(const GemmArgs& p) { return p.out == GemmOut::kF32 ? 4 : 2; }

}  // namespace

size_t spare_bytes(const WeightFormat& format, int64_t m, int64_t rows, int64_t cols) {
  if (!is_scaled_rows(format)) return 0;
  const int64_t widened = std::min(rows * cols * 2, std::max(kWidenedBytes, cols * 16));
  return static_cast<size_t>(std::max(widened, aligned(m * cols) + scale_bytes(format, m, cols)));
}

GemmArgs with_codes(const GemmArgs& args) {
  if (!is_scaled_rows(args.w.format) || args.m <= kSmallGemmRows || args.x_scales != nullptr)
    return args;
  const int64_t codes = aligned(int64_t{args.m} * args.k);
  const int64_t scales = scale_bytes(args.w.format, args.m, args.k);
  if (static_cast<int64_t>(args.spare.bytes) < codes + scales) return args;
  GemmArgs q = args;
  q.x = args.spare.data;
  q.x_stride = args.k;
  q.x_scales = static_cast<const float*>(bytes_after(args.spare.data, codes));
  q.norm_x = false;
  return first_kernel(q) == nullptr ? args : q;
}

cudaError_t quantize_x(const GemmArgs& args, const GemmArgs& quantized, const Launch& launch) {
  return quantize_rows({.type = args.type,
                        .x = args.x,
                        .x_stride = args.x_stride,
                        .rows = args.m,
                        .cols = args.k,
                        .codes = args.w.format.codes,
                        .out = const_cast<void*>(quantized.x),
                        .scales = const_cast<float*>(quantized.x_scales),
                        .blocks = args.w.format.block_cols > 0,
                        .norm = args.norm_x,
                        .eps = args.norm_eps,
                        .weight = args.norm_weight},
                       launch);
}

GemmArgs rows_of(const GemmArgs& args, int32_t first) {
  GemmArgs part = args;
  part.m = std::min(args.m - first, kSmallGemmRows);
  part.x = bytes_after(args.x, first * args.x_stride * 2);
  part.y = const_cast<void*>(bytes_after(args.y, first * args.y_stride * result_bytes(args)));
  return part;
}

GemmArgs widened_rows(const GemmArgs& args, int32_t first, int32_t count) {
  GemmArgs part = args;
  part.w = plain_weight(args.type, args.spare.data);
  part.n = count;
  part.y = const_cast<void*>(bytes_after(args.y, first * result_bytes(args)));
  part.bias = bytes_after(args.bias, first * result_bytes(args));
  part.spare = {};
  return part;
}

}  // namespace inferd::cuda
