// 1. The best token of a rank's logits, and of all ranks' bests; sums of squares of a part of a
//    row, and its scaling by those of the whole row.
// 2. logits f32 of any stride; x f16 or bf16; outputs as in sampler.h.
// 3. One block a row; take_best: one thread a row.
// 4. Some words of shared memory.
// 5. Compares only: NaN counts as -inf, ties go to the lower id. Squares are added in f32 in a
//    fixed order.
// 6. Any sizes, from sm_80.
// 7. Bytes of the logits of this rank once; bound by launch.
// 8. No method.
// 9. Nothing else tried.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/ranks/rank_rows.h"
#include "cuda/sampler/sampler_row.cuh"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 1024;

__device__ float minus_infinity() { return __int_as_float(0xff800000); }

__device__ BestToken better(const BestToken& a, const BestToken& b) {
  return b.logit > a.logit || (b.logit == a.logit && b.id < a.id) ? b : a;
}

__device__ BestToken warp_best(BestToken best) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const BestToken other = {__shfl_xor_sync(kFullWarp, best.logit, step),
                             __shfl_xor_sync(kFullWarp, best.id, step)};
    best = better(best, other);
  }
  return best;
}

__global__ void __launch_bounds__(kThreads)
    best_kernel(BestToken* out, const float* logits, int64_t stride, int32_t count,
                int32_t first_id) {
  __shared__ BestToken of_warps[kWarp];
  let_next_start();
  wait_for_previous();
  const float* row = logits + blockIdx.x * stride;
  BestToken best = {minus_infinity(), INT32_MAX};
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const float logit = fmaxf(row[i], minus_infinity());  // no NaN
    if (logit > best.logit) best = {logit, first_id + i};
  }
  best = warp_best(best);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = best;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  best = warp_best(of_warps[threadIdx.x]);
  if (threadIdx.x == 0) out[blockIdx.x] = best;
}

__global__ void take_kernel(const BestToken* all, int32_t ranks, const SampleParams p) {
  let_next_start();
  wait_for_previous();
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= p.rows) return;
  const int32_t slot = p.samples[row].slot;
  if (slot < 0) return;
  float most = minus_infinity();
  int32_t token = 0;
  for (int r = 0; r < ranks; ++r) {
    const BestToken best = all[row * ranks + r];
    if (best.logit > most) {
      most = best.logit;
      token = best.id;
    }
  }
  if (sampler::drafted_away(p, row, slot)) token = kNoDraft;
  p.out.tokens[row] = token;
  p.out.logprobs[row] = __int_as_float(0x7fc00000);
  p.out.ranks[row] = 0;
  p.out.top_counts[row] = 0;
  const int32_t length = p.slots.lengths[slot];
  if (p.drafted || length >= p.slots.max_len) return;
  p.slots.tokens[static_cast<int64_t>(slot) * p.slots.max_len + length] = token;
  p.slots.lengths[slot] = length + 1;
}

template <typename T>
__global__ void squares_kernel(float* sums, int64_t sums_stride, const T* x, int64_t x_stride,
                               int32_t cols, float scale) {
  __shared__ float scratch[kWarp];
  let_next_start();
  wait_for_previous();
  float sum = 0.f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    const float v = to_float(x[blockIdx.x * x_stride + c]);
    sum = fmaf(v, v, sum);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x * sums_stride] = scale * sum;
}

template <typename T>
__global__ void scale_kernel(T* x, int64_t x_stride, const float* sums, int64_t sums_stride,
                             int32_t cols, float over, const float* __restrict__ weight,
                             float eps) {
  let_next_start();
  wait_for_previous();
  const float factor = rsqrtf(sums[blockIdx.x * sums_stride] / over + eps);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    T& v = x[blockIdx.x * x_stride + c];
    v = from_float<T>(to_float(v) * factor * weight[c]);
  }
}

constexpr int kRowThreads = 256;
LaunchShape rows_of(int64_t rows, int threads) {
  return {.grid = dim3(static_cast<unsigned>(rows)), .threads = threads};
}

}  // namespace

cudaError_t best_tokens(BestToken* best, const float* logits, int64_t stride, int32_t count,
                        int32_t first_id, int32_t rows, const Launch& launch) {
  if (rows == 0) return cudaSuccess;
  return launch_kernel(best_kernel, rows_of(rows, kThreads), launch, best, logits, stride, count,
                       first_id);
}

cudaError_t take_best(const BestToken* all, int32_t ranks, const SampleParams& sample,
                      const Launch& launch) {
  if (sample.rows == 0) return cudaSuccess;
  return launch_kernel(take_kernel,
                       rows_of((sample.rows + kRowThreads - 1) / kRowThreads, kRowThreads), launch,
                       all, ranks, sample);
}

cudaError_t square_sums(Half type, float* sums, int64_t sums_stride, const void* x,
                        int64_t x_stride, int64_t rows, int32_t cols, float scale,
                        const Launch& launch) {
  if (rows == 0) return cudaSuccess;
  const LaunchShape shape = rows_of(rows, kRowThreads);
  return type == Half::kBF16
             ? launch_kernel(squares_kernel<__nv_bfloat16>, shape, launch, sums, sums_stride,
                             static_cast<const __nv_bfloat16*>(x), x_stride, cols, scale)
             : launch_kernel(squares_kernel<__half>, shape, launch, sums, sums_stride,
                             static_cast<const __half*>(x), x_stride, cols, scale);
}

cudaError_t scale_by_sums(Half type, void* x, int64_t x_stride, const float* sums,
                          int64_t sums_stride, int64_t rows, int32_t cols, int64_t over,
                          const float* weight, float eps, const Launch& launch) {
  if (rows == 0) return cudaSuccess;
  const LaunchShape shape = rows_of(rows, kRowThreads);
  const auto of = static_cast<float>(over);
  return type == Half::kBF16
             ? launch_kernel(scale_kernel<__nv_bfloat16>, shape, launch,
                             static_cast<__nv_bfloat16*>(x), x_stride, sums, sums_stride, cols, of,
                             weight, eps)
             : launch_kernel(scale_kernel<__half>, shape, launch, static_cast<__half*>(x), x_stride,
                             sums, sums_stride, cols, of, weight, eps);
}

}  // namespace inferd::cuda
