// 1. residual += scale * (first + second); out = residual / sqrt(mean(residual^2) + eps) * weight.
// 2. All [rows, width] f16 or bf16, packed, 16-byte aligned; weight [width] f32, or null.
// 3. One block a row; a thread owns every blockDim-th group of 8 values and keeps them in registers
//    between both passes, as in rows/norm.cu, so that the norm is summed in the same order.
// 4. Shared memory: one float a warp. About 16 registers a group of 8; the weights of a thread are
//    read before the kernel waits for the one ahead of it.
// 5. f32 sums of the parts in the order of ranks, rounded to 16 bits once with the residual; the
//    norm is taken of the rounded value. Relative error 2^-9 (bf16), 2^-11 (f16).
// 6. width a multiple of 8 up to 16384, any architecture from sm_80; else cudaErrorInvalidValue.
// 7. Bytes 10 * rows * width (three read, two written); bound by memory. A rank does this for half
//    of the rows; one that adds all rows and then norms them moves 12 for each, 24 for each here.
// 8. What is kept by halves and when it is put together: sequence parallelism, Korthikanti et al.
//    2022, "Reducing Activation Recomputation in Large Transformer Models".
// 9. Waiting for the other rank's part in here: every block would ask the system's memory for the
//    flag; one kernel ahead asks once.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/ranks/group_sum.cuh"
#include "cuda/ranks/sum_norm.h"

namespace inferd::cuda {
namespace {

constexpr int kMaxThreads = 1024;

template <typename T, int kGroups>
__global__ void sum_rms_norm_kernel(const SumNormArgs a) {
  __shared__ float scratch[kWarp];
  let_next_start();
  const int groups = a.width / 8;
  float4 scales[kGroups][2];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    scales[i][0] = scales[i][1] = {1.f, 1.f, 1.f, 1.f};
    if (at >= groups || a.weight == nullptr) continue;
    scales[i][0] = reinterpret_cast<const float4*>(a.weight)[at * 2];
    scales[i][1] = reinterpret_cast<const float4*>(a.weight)[at * 2 + 1];
  }
  wait_for_previous();
  const Sum<T, uint4, true> parts{static_cast<const T*>(a.first), static_cast<T*>(a.residual),
                                  a.scale};
  const auto* second = static_cast<const uint4*>(a.second);
  const int64_t row = int64_t{blockIdx.x} * groups;
  uint4 held[kGroups];
  float squares = 0.f;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at >= groups) continue;
    const uint4 ones = parts.own(row + at), twos = __ldcg(second + row + at);
    const uint4 old = parts.old(row + at);
    typename Sum<T, uint4, true>::Part sum;
    parts.take(sum, row + at, 0, ones);
    parts.take(sum, row + at, 1, twos);
    held[i] = parts.result(sum, old);
    parts.put(row + at, held[i]);
    const T* v = reinterpret_cast<const T*>(&held[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares = fmaf(to_float(v[j]), to_float(v[j]), squares);
  }
  const float scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(a.width) + a.eps);
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at >= groups) continue;
    const float* w = reinterpret_cast<const float*>(scales[i]);
    const T* v = reinterpret_cast<const T*>(&held[i]);
    Vec8<T> y;
#pragma unroll
    for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(to_float(v[j]) * scale * w[j]);
    store8(static_cast<T*>(a.out) + (row + at) * 8, y);
  }
}

template <typename T>
cudaError_t dispatch(const SumNormArgs& a, const Launch& launch) {
  const int groups = a.width / 8;
  const int threads = groups >= kMaxThreads ? kMaxThreads : (groups + kWarp - 1) / kWarp * kWarp;
  const auto kernel = groups <= threads ? sum_rms_norm_kernel<T, 1> : sum_rms_norm_kernel<T, 2>;
  return launch_kernel(kernel, {.grid = dim3(static_cast<unsigned>(a.rows)), .threads = threads},
                       launch, a);
}

}  // namespace

cudaError_t sum_rms_norm(Half type, const SumNormArgs& args, const Launch& launch) {
  if (args.width <= 0 || args.width % 8 != 0 || args.width > 2 * 8 * kMaxThreads || args.rows < 0)
    return cudaErrorInvalidValue;
  if (args.rows == 0) return cudaSuccess;
  return type == Half::kBF16 ? dispatch<__nv_bfloat16>(args, launch)
                             : dispatch<__half>(args, launch);
}

}  // namespace inferd::cuda
