// 1. out = x / sqrt(mean(x^2) + eps) * weight; fused: residual += x, then the norm of the sum (one
//    read and one write of each).
// 2. x, out, residual [rows, width] f16 or bf16, 16-byte aligned, packed or, without a residual,
//    rows of any distance; weight [width] f32.
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
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/rows/norm.h"

namespace inferd::cuda {
namespace {

constexpr int kMaxThreads = 1024;

template <typename T, int kGroups, bool kFused>
__global__ void rms_norm_kernel(T* out, int64_t out_stride, const T* x, int64_t x_stride,
                                T* residual, const float* __restrict__ weight, int32_t width,
                                float eps) {
  __shared__ float scratch[kWarp];
  let_next_start();
  x += blockIdx.x * x_stride;
  out += blockIdx.x * out_stride;
  if constexpr (kFused) residual += blockIdx.x * x_stride;
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
    held[i] = load8(x + at * 8);
    if constexpr (kFused) {
      const Vec8<T> r = load8(residual + at * 8);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        held[i].v[j] = from_float<T>(to_float(held[i].v[j]) + to_float(r.v[j]));
      }
      store8(residual + at * 8, held[i]);
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
    store8(out + at * 8, y);
  }
}

struct Rows {
  void* out;
  int64_t out_stride;
  const void* x;
  int64_t x_stride;
  void* residual;
  const float* weight;
  int64_t rows;
  int32_t width;
  float eps;
};

template <typename T, int kGroups>
cudaError_t dispatch(const Rows& r, int threads, const Launch& launch) {
  const auto kernel = r.residual != nullptr ? rms_norm_kernel<T, kGroups, true>
                                            : rms_norm_kernel<T, kGroups, false>;
  return launch_kernel(kernel, {.grid = dim3(static_cast<unsigned>(r.rows)), .threads = threads},
                       launch, static_cast<T*>(r.out), r.out_stride, static_cast<const T*>(r.x),
                       r.x_stride, static_cast<T*>(r.residual), r.weight, r.width, r.eps);
}

template <typename T>
cudaError_t dispatch(const Rows& r, const Launch& launch) {
  const int groups = r.width / 8;
  const int threads = groups >= kMaxThreads ? kMaxThreads : (groups + kWarp - 1) / kWarp * kWarp;
  return groups <= threads ? dispatch<T, 1>(r, threads, launch)
                           : dispatch<T, 2>(r, threads, launch);
}

cudaError_t dispatch(Half type, const Rows& r, const Launch& launch) {
  if (r.width <= 0 || r.width % 8 != 0 || r.width > 2 * 8 * kMaxThreads || r.rows < 0 ||
      r.x_stride % 8 != 0 || r.out_stride % 8 != 0) {
    return cudaErrorInvalidValue;
  }
  if (r.rows == 0) return cudaSuccess;
  return type == Half::kBF16 ? dispatch<__nv_bfloat16>(r, launch) : dispatch<__half>(r, launch);
}

}  // namespace

cudaError_t rms_norm(Half type, void* out, const void* x, void* residual, const float* weight,
                     int64_t rows, int32_t width, float eps, const Launch& launch) {
  return dispatch(type, {out, width, x, width, residual, weight, rows, width, eps}, launch);
}

cudaError_t rms_norm_rows(Half type, void* out, int64_t out_stride, const void* x, int64_t x_stride,
                          const float* weight, int64_t rows, int32_t width, float eps,
                          const Launch& launch) {
  return dispatch(type, {out, out_stride, x, x_stride, nullptr, weight, rows, width, eps}, launch);
}

}  // namespace inferd::cuda
