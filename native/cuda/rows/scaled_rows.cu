// 1. Rows of 8-bit codes, e4m3 or integers, with scales: codes = round(x / s), s = the largest
//    magnitude of a row or block over the largest code. Of weights, once, while they are loaded; of
//    activations ahead of products, of x itself or of its norm. And back: codes * s in 16 bits.
// 2. Weights [rows, cols] f32, f16 or bf16, packed; a scale for each row, or for blocks of 1 or 128
//    rows by 128 columns. Activations f16 or bf16, 16-byte aligned rows of any distance; scales
//    [rows], or [cols / 128, rows], so that neighbouring rows lie side by side.
// 3. Weights: a block of threads for each block of weights, or row. Activations: a block a row; a
//    thread owns every blockDim-th group of 16 values and keeps them in registers; the 8 threads of
//    128 columns find their largest among themselves. Widening: 8 codes a thread.
// 4. Shared memory: one float a warp. 8 registers a group of 16 values.
// 5. e4m3 to nearest, ties to even; integers to nearest even, -127..127. A row of zeros has the
//    smallest normal scale. A norm is rounded to 16 bits first, so that it equals the op by itself.
// 6. From sm_80; cols a multiple of 16 (weights: of any number to quantize, of 8 to widen).
// 7. Bytes 3 * rows * cols. Bound by memory in prefill, by launch in decode.
// 8. Scales of tokens and of 128 columns: DeepSeek-V3, 2024.
// 9. Not measured apart yet.
#include <cuda_fp8.h>

#include <algorithm>

#include "cuda/device/launch.cuh"
#include "cuda/rows/codes.cuh"
#include "cuda/rows/scaled_rows.h"

namespace inferd::cuda {
namespace {

constexpr int kBlockCols = 128;
constexpr float kSmallestScale = 1.17549435e-38f;

constexpr float largest_code(CodeType codes) { return codes == CodeType::kFloat8 ? 448.f : 127.f; }

__device__ float block_max(float x, float* scratch) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int warps = (blockDim.x + kWarp - 1) / kWarp;
  x = warp_max(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = warp_max(lane < warps ? scratch[lane] : 0.f);
  __syncthreads();
  return x;
}

template <CodeType kCodes>
__device__ uint8_t to_code(float x) {
  if constexpr (kCodes == CodeType::kFloat8) {
    return static_cast<uint8_t>(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
  } else {
    return static_cast<uint8_t>(
        static_cast<int8_t>(__float2int_rn(fminf(fmaxf(x, -127.f), 127.f))));
  }
}
template <CodeType kCodes>
__device__ float from_code(uint8_t code) {
  if constexpr (kCodes == CodeType::kFloat8) {
    uint32_t even, odd;
    widen4<__half, kCodes>(code, even, odd);
    return unpack2<__half>(even).x;
  } else {
    return static_cast<float>(static_cast<int8_t>(code));
  }
}

// Block (x, y) of threads: block (y, x) of weights.
template <typename S, CodeType kCodes>
__global__ void quantize_weights_kernel(uint8_t* codes, float* scales, const S* source,
                                        int64_t rows, int64_t cols, int64_t block_rows,
                                        int64_t block_cols) {
  __shared__ float scratch[kWarp];
  const int64_t row0 = blockIdx.y * block_rows, col0 = blockIdx.x * block_cols;
  const int64_t height = min(block_rows, rows - row0), width = min(block_cols, cols - col0);
  float top = 0.f;
  for (int64_t r = 0; r < height; ++r) {
    const S* from = source + (row0 + r) * cols + col0;
    for (int64_t c = threadIdx.x; c < width; c += blockDim.x)
      top = fmaxf(top, fabsf(to_float(from[c])));
  }
  const float scale = fmaxf(block_max(top, scratch) / largest_code(kCodes), kSmallestScale);
  if (threadIdx.x == 0) scales[blockIdx.y * gridDim.x + blockIdx.x] = scale;
  const float factor = 1.f / scale;
  for (int64_t r = 0; r < height; ++r) {
    const int64_t at = (row0 + r) * cols + col0;
    for (int64_t c = threadIdx.x; c < width; c += blockDim.x)
      codes[at + c] = to_code<kCodes>(to_float(source[at + c]) * factor);
  }
}

template <typename S>
cudaError_t quantize_weights(const WeightFormat& f, void* codes, float* scales, const Tensor& t,
                             cudaStream_t stream) {
  const int64_t most_rows = 65535;  // of a grid
  const int64_t rows = t.rows(), cols = t.cols(), across = scales_across(f, cols);
  const int64_t block_cols = f.block_cols == 0 ? cols : f.block_cols;
  const auto kernel = f.codes == CodeType::kFloat8 ? quantize_weights_kernel<S, CodeType::kFloat8>
                                                   : quantize_weights_kernel<S, CodeType::kInt8>;
  for (int64_t row = 0; row < rows; row += most_rows * f.block_rows) {
    const int64_t count = std::min(rows - row, most_rows * f.block_rows);
    const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(scales_down(f, count)));
    kernel<<<grid, 256, 0, stream>>>(static_cast<uint8_t*>(codes) + row * cols,
                                     scales + row / f.block_rows * across, t.as<S>() + row * cols,
                                     count, cols, f.block_rows, block_cols);
  }
  return cudaGetLastError();
}

template <typename T, CodeType kCodes>
__global__ void widen_kernel(T* out, const uint8_t* codes, const float* scales, int64_t first,
                             int64_t groups, Divisor row_groups, int32_t block_rows,
                             int32_t block_cols, int32_t across) {
  let_next_start();
  wait_for_previous();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < groups;
       i += step) {
    const int64_t row = row_groups.divide(static_cast<int32_t>(i));
    const int32_t col = static_cast<int32_t>(i - row * row_groups.value) * 8;
    const float scale =
        scales[(first + row) / block_rows * across + (block_cols == 0 ? 0 : col / block_cols)];
    const uint2 words =
        *reinterpret_cast<const uint2*>(codes + (first + row) * row_groups.value * 8 + col);
    uint4 result;
    const auto widen = [&](uint32_t word, uint32_t& low, uint32_t& high) {
      uint32_t even, odd;
      widen4<__half, kCodes>(word, even, odd);
      const float2 e = unpack2<__half>(even), o = unpack2<__half>(odd);
      low = pack2<T>(e.x * scale, o.x * scale);
      high = pack2<T>(e.y * scale, o.y * scale);
    };
    widen(words.x, result.x, result.y);
    widen(words.y, result.z, result.w);
    *reinterpret_cast<uint4*>(out + i * 8) = result;
  }
}

template <typename T>
cudaError_t widen(void* out, const WeightView& w, int64_t first, int64_t rows, int32_t cols,
                  const Launch& launch) {
  constexpr int kThreads = 256;
  constexpr int64_t kMostBlocks = 8192;
  const int64_t groups = rows * (cols / 8);
  const int64_t blocks = std::min((groups + kThreads - 1) / kThreads, kMostBlocks);
  const auto kernel = w.format.codes == CodeType::kFloat8 ? widen_kernel<T, CodeType::kFloat8>
                                                          : widen_kernel<T, CodeType::kInt8>;
  return launch_kernel(kernel, {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kThreads},
                       launch, static_cast<T*>(out), static_cast<const uint8_t*>(w.codes),
                       static_cast<const float*>(w.scales), first, groups, Divisor::of(cols / 8),
                       w.format.block_rows, w.format.block_cols,
                       static_cast<int32_t>(scales_across(w.format, cols)));
}

constexpr int kMostThreads = 1024;
constexpr int kGroup = 16;

template <CodeType kCodes>
__device__ uint32_t to_codes(float a, float b, float c, float d) {
  return to_code<kCodes>(a) | to_code<kCodes>(b) << 8 | to_code<kCodes>(c) << 16 |
         static_cast<uint32_t>(to_code<kCodes>(d)) << 24;
}

template <typename T, CodeType kCodes, int kGroups>
__global__ void __launch_bounds__(kMostThreads) quantize_rows_kernel(const QuantizeRows p) {
  __shared__ float scratch[kWarp];
  let_next_start();
  const int groups = p.cols / kGroup;
  float4 weights[kGroups][kGroup / 4];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
#pragma unroll
    for (int j = 0; j < kGroup / 4; ++j) {
      weights[i][j] = {1.f, 1.f, 1.f, 1.f};
      if (p.norm && p.weight != nullptr && at < groups)
        weights[i][j] = reinterpret_cast<const float4*>(p.weight)[at * (kGroup / 4) + j];
    }
  }
  wait_for_previous();
  const T* x = static_cast<const T*>(p.x) + blockIdx.x * p.x_stride;
  Vec8<T> held[kGroups][2];
  float squares = 0.f;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (at < groups) {
        held[i][h] = load8(x + at * kGroup + h * 8);
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) held[i][h].v[j] = from_float<T>(0.f);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float v = to_float(held[i][h].v[j]);
        squares = fmaf(v, v, squares);
      }
    }
  }
  if (p.norm) {
    const float factor = rsqrtf(block_sum(squares, scratch) / static_cast<float>(p.cols) + p.eps);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int at = threadIdx.x + i * blockDim.x;
      if (at >= groups) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float w = reinterpret_cast<const float*>(weights[i])[h * 8 + j];
          held[i][h].v[j] = from_float<T>(to_float(held[i][h].v[j]) * factor * w);
        }
      }
    }
  }
  float tops[kGroups], top = 0.f;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    tops[i] = 0.f;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int j = 0; j < 8; ++j) tops[i] = fmaxf(tops[i], fabsf(to_float(held[i][h].v[j])));
    }
    top = fmaxf(top, tops[i]);
  }
  if (p.blocks) {
    constexpr int kLanes = kBlockCols / kGroup;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
#pragma unroll
      for (int apart = 1; apart < kLanes; apart *= 2)
        tops[i] = fmaxf(tops[i], __shfl_xor_sync(kFullWarp, tops[i], apart));
    }
  } else {
    top = block_max(top, scratch);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) tops[i] = top;
    if (threadIdx.x == 0) p.scales[blockIdx.x] = fmaxf(top / largest_code(kCodes), kSmallestScale);
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at >= groups) continue;
    const float scale = fmaxf(tops[i] / largest_code(kCodes), kSmallestScale);
    const float factor = 1.f / scale;
    if (p.blocks && at % (kBlockCols / kGroup) == 0)
      p.scales[static_cast<int64_t>(at / (kBlockCols / kGroup)) * p.rows + blockIdx.x] = scale;
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const T* from = &held[i][w / 2].v[w % 2 * 4];
      words[w] = to_codes<kCodes>(to_float(from[0]) * factor, to_float(from[1]) * factor,
                                  to_float(from[2]) * factor, to_float(from[3]) * factor);
    }
    uint8_t* to = static_cast<uint8_t*>(p.out) + static_cast<int64_t>(blockIdx.x) * p.cols;
    *reinterpret_cast<uint4*>(to + at * kGroup) = {words[0], words[1], words[2], words[3]};
  }
}

template <typename T, CodeType kCodes>
cudaError_t quantize(const QuantizeRows& p, const Launch& launch) {
  const int groups = p.cols / kGroup;
  // As few groups a thread as it takes; threads in whole warps, since lanes look at each other.
  const int held = groups <= kMostThreads ? 1 : groups <= 2 * kMostThreads ? 2 : 4;
  const int wanted = (groups + held - 1) / held;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(p.rows)),
                             .threads = (wanted + kWarp - 1) / kWarp * kWarp};
  return held == 1   ? launch_kernel(quantize_rows_kernel<T, kCodes, 1>, shape, launch, p)
         : held == 2 ? launch_kernel(quantize_rows_kernel<T, kCodes, 2>, shape, launch, p)
                     : launch_kernel(quantize_rows_kernel<T, kCodes, 4>, shape, launch, p);
}

template <typename T>
cudaError_t quantize_codes(const QuantizeRows& p, const Launch& launch) {
  return p.codes == CodeType::kFloat8 ? quantize<T, CodeType::kFloat8>(p, launch)
                                      : quantize<T, CodeType::kInt8>(p, launch);
}

}  // namespace

cudaError_t quantize_weight_rows(const WeightFormat& format, void* codes, float* scales,
                                 const Tensor& source, cudaStream_t stream) {
  if (!is_scaled_rows(format)) return cudaErrorInvalidValue;
  if (source.size() == 0) return cudaSuccess;
  switch (source.dtype) {
    case DType::kF32:
      return quantize_weights<float>(format, codes, scales, source, stream);
    case DType::kF16:
      return quantize_weights<__half>(format, codes, scales, source, stream);
    case DType::kBF16:
      return quantize_weights<__nv_bfloat16>(format, codes, scales, source, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t widen_weight_rows(Half type, void* out, const WeightView& w, int64_t first,
                              int64_t rows, int32_t cols, const Launch& launch) {
  if (!is_scaled_rows(w.format) || cols % 8 != 0 || rows * (cols / 8) >= int64_t{1} << 31)
    return cudaErrorInvalidValue;
  return type == Half::kBF16 ? widen<__nv_bfloat16>(out, w, first, rows, cols, launch)
                             : widen<__half>(out, w, first, rows, cols, launch);
}

cudaError_t quantize_rows(const QuantizeRows& p, const Launch& launch) {
  if (p.rows < 1 || p.cols < kGroup || p.cols % kGroup != 0 || p.cols > 4 * kMostThreads * kGroup ||
      p.x_stride % 8 != 0)
    return cudaErrorInvalidValue;
  return p.type == Half::kBF16 ? quantize_codes<__nv_bfloat16>(p, launch)
                               : quantize_codes<__half>(p, launch);
}

}  // namespace inferd::cuda
