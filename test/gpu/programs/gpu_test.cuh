// What the standalone GPU test programs share: device arrays, noise, a float64 error measure,
// timing of captured launches, and the machine's own read bandwidth. Any CUDA error ends the
// program.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/device/half_type.h"

namespace gpu_test {

using inferd::cuda::Half;

inline void check(cudaError_t status, const char* what, int line) {
  if (status == cudaSuccess) return;
  std::printf("%s, line %d: %s\n", what, line, cudaGetErrorString(status));
  std::exit(1);
}
#define CHECK_CUDA(call) gpu_test::check((call), #call, __LINE__)

inline int failures = 0;

// Prints only failures.
inline void expect(bool good, const std::string& what) {
  if (good) return;
  if (++failures <= 40) std::printf("FAILED %s\n", what.c_str());
}

// A device array; lives to the end of its scope.
template <typename T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) {
    CHECK_CUDA(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)));
    fill(0xff);  // NaN, and indices that fault
  }
  explicit Device(const std::vector<T>& values) : Device(values.size()) { upload(values); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { cudaFree(data_); }
  void upload(const std::vector<T>& values) {
    CHECK_CUDA(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyDefault));
  }
  std::vector<T> download() const {
    std::vector<T> out(count_);
    CHECK_CUDA(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDefault));
    return out;
  }
  void fill(int byte) { CHECK_CUDA(cudaMemset(data_, byte, count_ * sizeof(T))); }
  T* get() const { return data_; }
  size_t size() const { return count_; }

 private:
  T* data_ = nullptr;
  size_t count_;
};

__host__ __device__ inline float noise(uint64_t i, uint32_t seed) {  // uniform in [-1, 1)
  uint32_t x = static_cast<uint32_t>(i ^ i >> 32) * 2654435761u ^ seed;
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  x ^= x >> 16;
  return static_cast<float>(x) / 2147483648.f - 1.f;
}

inline __nv_bfloat16 to_half(float x, __nv_bfloat16*) { return __float2bfloat16_rn(x); }
inline __half to_half(float x, __half*) { return __float2half_rn(x); }
template <typename T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return to_half(x, static_cast<T*>(nullptr));
  }
}
inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
inline float to_float(__half x) { return __half2float(x); }
inline float to_float(float x) { return x; }

template <typename T>
constexpr Half half_of = std::is_same_v<T, __half> ? Half::kF16 : Half::kBF16;
template <typename T>
constexpr double rounding = std::is_same_v<T, __half> ? 0x1p-11 : 0x1p-8;

template <typename T>
std::vector<T> noisy(size_t count, float scale, uint32_t seed) {
  std::vector<T> out(count);
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      out[i] = noise(i, seed) * scale;
    } else {
      out[i] = to_half(noise(i, seed) * scale, static_cast<T*>(nullptr));
    }
  }
  return out;
}

template <typename T>
__global__ void fill_noise(T* p, int64_t count, float scale, uint32_t seed) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    p[i] = static_cast<T>(noise(static_cast<uint64_t>(i), seed) * scale);
  }
}

// 1 / sqrt(mean(x^2) + eps) of each row of x, in float64.
template <typename T>
std::vector<double> row_factors(const std::vector<T>& x, int rows, int64_t stride, int columns,
                                double eps) {
  std::vector<double> factors;
  for (int row = 0; row < rows; ++row) {
    double sum = 0;
    for (int i = 0; i < columns; ++i) {
      const double v = static_cast<double>(to_float(x[static_cast<size_t>(row * stride + i)]));
      sum += v * v;
    }
    factors.push_back(1 / std::sqrt(sum / columns + eps));
  }
  return factors;
}

// ||got - want|| / ||want||; NaN where anything is not finite.
template <typename T>
double relative_error(const std::vector<T>& got, const std::vector<double>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(to_float(got[i])) - want[i];
    difference += d * d;
    size += want[i] * want[i];
  }
  return std::sqrt(difference / std::max(size, 1e-300));
}

// Median microseconds of one of `count` launches in a captured graph; launch(i) enqueues the i-th.
inline double time_in_graph(cudaStream_t stream, int count, int rounds,
                            const std::function<void(int)>& launch) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < count; ++i) launch(i);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  std::vector<float> times;
  for (int r = 0; r < rounds + 1; ++r) {
    CHECK_CUDA(cudaEventRecord(begin, stream));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaEventRecord(end, stream));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (r > 0) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]) * 1000 / count;
}

static __global__ void read_all(const uint4* p, int64_t count, uint32_t* out) {
  uint32_t seen = 0;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const uint4 v = __ldcs(p + i);
    seen ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (seen == 0x12345) *out = seen;
}

// GB/s of a kernel that only reads `bytes` bytes, the best of eight.
inline double read_ceiling(const void* p, size_t bytes, cudaStream_t stream) {
  Device<uint32_t> out(1);
  double best = 1e30;
  for (int i = 0; i < 8; ++i) {
    best =
        std::min(best, time_in_graph(stream, 1, 1, [&](int) {
                   read_all<<<132 * 16, 512, 0, stream>>>(
                       static_cast<const uint4*>(p), static_cast<int64_t>(bytes / 16), out.get());
                 }));
  }
  return static_cast<double>(bytes) / best / 1e3;
}

}  // namespace gpu_test
