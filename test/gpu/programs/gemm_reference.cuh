// What a product of GemmArgs should be, in float64, for the test programs of the GEMM kernels.
#pragma once
#include <cstring>
#include <vector>

#include "cuda/gemm/gemm_args.h"
#include "gpu_test.cuh"

namespace gpu_test {

using inferd::cuda::GemmArgs;

// A warp: the sum over k of x[i] * w[i], in every lane.
template <typename T, typename W>
__device__ double dot(const T* x, const W* w, int k) {
  double sum = 0;
  for (int i = threadIdx.x % 32; i < k; i += 32) {
    sum += static_cast<double>(static_cast<float>(x[i])) *
           static_cast<double>(static_cast<float>(w[i]));
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

// A warp: element [row, column] of y as `p` asks for it, p.norm_x aside. `old` is y before.
// `factors` [m] multiply the rows of x, as a norm does; null: nothing does. Weights are of W.
template <typename T, typename Y, typename W>
__device__ double wanted(const GemmArgs& p, int64_t row, int column, const Y* old,
                         const double* factors) {
  const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
  const Y* bias = static_cast<const Y*>(p.bias);
  const auto product = [&](int64_t output) {
    double sum = dot(x, static_cast<const W*>(p.w.codes) + output * p.k, p.k);
    if (factors != nullptr) sum *= factors[row];
    if (bias != nullptr) sum += static_cast<double>(static_cast<float>(bias[output]));
    return sum;
  };
  double want = product(column);
  if (p.gated) want = want / (1 + exp(-want)) * product(int64_t{p.n} + column);
  if (p.add_to_y) want += static_cast<double>(static_cast<float>(old[row * p.y_stride + column]));
  return want;
}

template <typename T, typename Y, typename W>
__global__ void reference_kernel(double* want, const GemmArgs p, const Y* old,
                                 const double* factors) {
  const int column = blockIdx.x * 8 + threadIdx.x / 32, row = blockIdx.y;
  if (column >= p.n) return;
  const double value = wanted<T, Y, W>(p, row, column, old, factors);
  if (threadIdx.x % 32 == 0) want[static_cast<int64_t>(row) * p.n + column] = value;
}

// Enqueues want[m, n] = what wanted() says.
template <typename T, typename Y, typename W = T>
void reference(double* want, const GemmArgs& p, const Y* old, const double* factors,
               cudaStream_t stream) {
  reference_kernel<T, Y, W><<<dim3((p.n + 7) / 8, p.m), 256, 0, stream>>>(want, p, old, factors);
  CHECK_CUDA(cudaGetLastError());
}

// The [m, n] part of y whose rows are y_stride apart, and whether the rest is as it was.
template <typename Y>
struct Result {
  std::vector<Y> values;
  bool rest_same = true;

  Result(const GemmArgs& p, const std::vector<Y>& now, const std::vector<Y>& before) {
    for (size_t i = 0; i < now.size(); ++i) {
      if (static_cast<int64_t>(i) % p.y_stride < p.n) {
        values.push_back(now[i]);
      } else {
        rest_same = rest_same && std::memcmp(&now[i], &before[i], sizeof(Y)) == 0;
      }
    }
  }
};

}  // namespace gpu_test
