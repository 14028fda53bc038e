// 1. out = x / sqrt(mean(x^2) + eps) * weight; fused: residual += x, then the norm of the sum (one
//    read and one write of each).
// 2. x, out, residual [rows, width] f16 or bf16, packed rows, 16-byte aligned; weight [width] f32.
//    out may be x.
// 3. One block a row; a thread owns every blockDim-th group of 8 values and keeps them in registers
//    between both passes.
// 4. Shared memory: one float a warp. About 16 registers a group of 8; the weights of a thread are
//    read before the kernel waits for the one ahead of it.
// 5. f32 accumulation in a fixed order; the residual sum is rounded to 16 bits once and the norm is
//    taken of the rounded value, so that it equals the unfused ops. Relative error 2^-9 (bf16),
//    2^-11 (f16).
// 6. width a multiple of 8 up to 16384, any architecture from sm_80; else cudaErrorInvalidValue.
// 7. Bytes 2 * (2 + 2 * fused) * rows * width; bound by memory in prefill, by launch and one round
//    trip to L2 in decode.
// 8. Root mean square layer normalization, Zhang and Sennrich 2019.
// 9. Two passes over global memory instead of registers: a second read of the row, slower for every
//    width tried.
#include "common.cuh"
#include "launch.cuh"
#include "norm.h"

namespace inferd::cuda {
namespace {

constexpr int kMaxThreads = 1024;

template <typename T, int kGroups, bool kFused>
__global__ void rms_norm_kernel(T* out, const T* x, T* residual, const float* __restrict__ weight,
                                int32_t width, float eps) {
  __shared__ float scratch[kWarp];
  let_next_start();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * width;
  const int groups = width / 8;
  float4 scales[kGroups][2];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    scales[i][0] = scales[i][1] = {1.f, 1.f, 1.f, 1.f};
    if (at >= groups || weight == nullptr) continue;
    scales[i][0] = reinterpret_cast<const float4*>(weight)[at * 2];
    scales[i][1] = reinterpret_cast<const float4*>(weight)[at * 2 + 1];
  }
  wait_for_previous();
  Vec8<T> held[kGroups];
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at >= groups) continue;
    held[i] = load8(x + row + at * 8);
    if constexpr (kFused) {
      const Vec8<T> r = load8(residual + row + at * 8);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        held[i].v[j] = from_float<T>(to_float(held[i].v[j]) + to_float(r.v[j]));
      }
      store8(residual + row + at * 8, held[i]);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float v = to_float(held[i].v[j]);
      sum = fmaf(v, v, sum);
    }
  }
  const float scale = rsqrtf(block_sum(sum, scratch) / static_cast<float>(width) + eps);
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at >= groups) continue;
    const float* w = reinterpret_cast<const float*>(scales[i]);
    Vec8<T> y;
#pragma unroll
    for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(to_float(held[i].v[j]) * scale * w[j]);
    store8(out + row + at * 8, y);
  }
}

template <typename T, int kGroups>
cudaError_t dispatch(void* out, const void* x, void* residual, const float* weight, int64_t rows,
                     int32_t width, float eps, int threads, const Launch& launch) {
  const auto kernel =
      residual != nullptr ? rms_norm_kernel<T, kGroups, true> : rms_norm_kernel<T, kGroups, false>;
  return launch_kernel(kernel, {.grid = dim3(static_cast<unsigned>(rows)), .threads = threads},
                       launch, static_cast<T*>(out), static_cast<const T*>(x),
                       static_cast<T*>(residual), weight, width, eps);
}

template <typename T>
cudaError_t dispatch(void* out, const void* x, void* residual, const float* weight, int64_t rows,
                     int32_t width, float eps, const Launch& launch) {
  const int groups = width / 8;
  const int threads = groups >= kMaxThreads ? kMaxThreads : (groups + kWarp - 1) / kWarp * kWarp;
  return groups <= threads
             ? dispatch<T, 1>(out, x, residual, weight, rows, width, eps, threads, launch)
             : dispatch<T, 2>(out, x, residual, weight, rows, width, eps, threads, launch);
}

}  // namespace

cudaError_t rms_norm(Half type, void* out, const void* x, void* residual, const float* weight,
                     int64_t rows, int32_t width, float eps, const Launch& launch) {
  if (width <= 0 || width % 8 != 0 || width > 2 * 8 * kMaxThreads || rows < 0) {
    return cudaErrorInvalidValue;
  }
  if (rows == 0) return cudaSuccess;
  return type == Half::kBF16
             ? dispatch<__nv_bfloat16>(out, x, residual, weight, rows, width, eps, launch)
             : dispatch<__half>(out, x, residual, weight, rows, width, eps, launch);
}

}  // namespace inferd::cuda
