// 1. residual += scale * (the sum of the parts of the ranks), in their order; and where it is asked
//    for out = residual / sqrt(mean(residual^2) + eps) * weight.
// 2. All [rows, width] f16 or bf16, packed, 16-byte aligned; weight [width] f32, or null.
// 3. One block a row; a thread owns every blockDim-th group of 8 values and keeps them in registers
//    between both passes, as in rows/norm.cu, so that the norm is summed in the same order.
//    Up to four parts of a group are under way at once.
// 4. Shared memory: one float a warp. Of a group of 8 about 16 registers and 4 for each part; the
//    weights of a thread are read before the kernel waits for the one ahead of it.
// 5. f32 sums of the parts in the order of ranks, rounded to 16 bits once with the residual; the
//    norm is taken of the rounded value. Relative error 2^-9 (bf16), 2^-11 (f16).
// 6. width a multiple of 8 up to 16384, any architecture from sm_80; else cudaErrorInvalidValue.
// 7. Bytes 2 * (ranks + 3) * rows * width (ranks + 1 read, two written); bound by memory. A rank
//    does this for its share of the rows: of two ranks it moves 10 for each, where one that adds
//    all rows and then norms them moves 24.
// 8. What is kept by shares and when it is put together: sequence parallelism, Korthikanti et al.
//    2022, "Reducing Activation Recomputation in Large Transformer Models".
// 9. Waiting for the other ranks' parts in here: every block would ask the system's memory for the
//    flags; one kernel ahead asks once.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/ranks/group_sum.cuh"
#include "cuda/ranks/sum_norm.h"

namespace inferd::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMostAtOnce = 4;

// kParts: of them a.ranks are there.
template <typename T, int kGroups, int kParts>
__global__ void __launch_bounds__(kMaxThreads)
    sum_rms_norm_kernel(const __grid_constant__ SumNormArgs a) {
  __shared__ float scratch[kWarp];
  constexpr int kAtOnce = kParts < kMostAtOnce ? kParts : kMostAtOnce;
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
  const Sum<T, uint4, true> sums{nullptr, static_cast<T*>(a.residual), a.scale};
  const int64_t row = int64_t{blockIdx.x} * groups;
  uint4 held[kGroups];
  float squares = 0.f;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at >= groups) continue;
    const uint4 old = sums.old(row + at);
    typename Sum<T, uint4, true>::Part sum;
#pragma unroll
    for (int first = 0; first < kParts; first += kAtOnce) {
      uint4 part[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        if (first + r < a.ranks)
          part[r] = __ldcg(static_cast<const uint4*>(a.parts[first + r]) + row + at);
      }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        if (first + r < a.ranks) sums.take(sum, row + at, first + r, part[r]);
      }
    }
    held[i] = sums.result(sum, old);
    sums.put(row + at, held[i]);
    const T* v = reinterpret_cast<const T*>(&held[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares = fmaf(to_float(v[j]), to_float(v[j]), squares);
  }
  if (a.out == nullptr) return;
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

template <typename T, int kParts>
cudaError_t run(const SumNormArgs& a, const Launch& launch) {
  const int groups = a.width / 8;
  const int threads = groups >= kMaxThreads ? kMaxThreads : (groups + kWarp - 1) / kWarp * kWarp;
  const auto kernel =
      groups <= threads ? sum_rms_norm_kernel<T, 1, kParts> : sum_rms_norm_kernel<T, 2, kParts>;
  return launch_kernel(kernel, {.grid = dim3(static_cast<unsigned>(a.rows)), .threads = threads},
                       launch, a);
}

template <typename T>
cudaError_t dispatch(const SumNormArgs& a, const Launch& launch) {
  if (a.ranks == 2) return run<T, 2>(a, launch);
  return a.ranks <= 4 ? run<T, 4>(a, launch) : run<T, kMostRanks>(a, launch);
}

}  // namespace

cudaError_t sum_rms_norm(Half type, const SumNormArgs& args, const Launch& launch) {
  if (args.width <= 0 || args.width % 8 != 0 || args.width > 2 * 8 * kMaxThreads || args.rows < 0 ||
      args.ranks < 2 || args.ranks > kMostRanks)
    return cudaErrorInvalidValue;
  if (args.rows == 0) return cudaSuccess;
  return type == Half::kBF16 ? dispatch<__nv_bfloat16>(args, launch)
                             : dispatch<__half>(args, launch);
}

}  // namespace inferd::cuda
