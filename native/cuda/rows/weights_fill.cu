// Random weights for load_dummy, made on the device, 16-bit copies of f32 vectors, and weights
// whose columns take in the weight of a norm.
//
// 1. fill: out[r][c] = dummy_weight(first + r step + c), the numbers every backend makes. narrow: a
//    conversion. scale: weight[r][c] *= factors[c].
// 2. fill reads nothing; writes [rows, cols] values of f32, f16 or bf16. scale reads and writes
//    [rows, cols] of f16 or bf16, factors [cols] of f32.
// 3. One thread an element, grid-stride: the work is a few integer operations an element and
//    stays under the time of the writes. Rows whose counters follow each other are one row. scale:
//    8 values of a row a thread, the factors from L2.
// 4. Bound: write bandwidth; 16 GB in about 10 ms on an H200.
// 5. No shared memory, no reductions.
// 6. Any count; memory aligned to its elements. scale: cols a multiple of 8, rows 16-byte aligned.
// 7. Runs at start-up only; deterministic, since an element depends on its counter alone.
// 8. sm_80 and later, the same code.
// 9. Conversion rounds to nearest even, as the host's does.
#include <algorithm>

#include "core/dummy_weight.h"
#include "cuda/device/common.cuh"
#include "cuda/rows/weights.h"

namespace inferd::cuda {
namespace {

template <typename T>
__global__ void fill(T* out, int64_t rows, int64_t cols, DummyRows numbers) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    for (int64_t c = first; c < cols; c += step)
      out[r * cols + c] = from_float<T>(dummy_weight(numbers.counter(r, c)));
  }
}

template <typename T>
cudaError_t launch(const Tensor& t, const DummyRows& numbers, cudaStream_t stream) {
  constexpr int kThreads = 256;
  constexpr int64_t kMostBlocks = 4096;
  if (t.size() == 0) return cudaSuccess;
  const bool one_row = numbers.step == t.cols();
  const int64_t rows = one_row ? 1 : t.rows(), cols = one_row ? t.size() : t.cols();
  const int64_t across = std::min((cols + kThreads - 1) / kThreads, kMostBlocks);
  const int64_t down = std::min(rows, std::max<int64_t>(kMostBlocks / across, 1));
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  fill<<<grid, kThreads, 0, stream>>>(t.as<T>(), rows, cols, numbers);
  return cudaGetLastError();
}

template <typename T>
__global__ void narrow(T* out, const float* values, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = from_float<T>(values[i]);
}

template <typename T>
__global__ void scale(T* weight, const float* factors, int64_t groups, Divisor row_groups) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < groups;
       i += step) {
    const int32_t at = static_cast<int32_t>(i);
    const float* from = factors + (at - row_groups.divide(at) * row_groups.value) * 8;
    Vec8<T> v = load8(weight + i * 8);
#pragma unroll
    for (int j = 0; j < 8; ++j) v.v[j] = from_float<T>(to_float(v.v[j]) * from[j]);
    store8(weight + i * 8, v);
  }
}

template <typename T>
cudaError_t launch_scale(void* weight, const float* factors, int64_t rows, int64_t cols,
                         cudaStream_t stream) {
  constexpr int kThreads = 256;
  constexpr int64_t kMostBlocks = 4096;
  const int64_t groups = rows * cols / 8;
  const int64_t blocks = std::min((groups + kThreads - 1) / kThreads, kMostBlocks);
  if (blocks == 0) return cudaSuccess;
  scale<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<T*>(weight), factors, groups, Divisor::of(static_cast<int32_t>(cols / 8)));
  return cudaGetLastError();
}

}  // namespace

cudaError_t scale_weight_columns(Half type, void* weight, const float* factors, int64_t rows,
                                 int64_t cols, cudaStream_t stream) {
  if (cols % 8 != 0 || rows * cols / 8 >= int64_t{1} << 31) return cudaErrorInvalidValue;
  return type == Half::kF16 ? launch_scale<__half>(weight, factors, rows, cols, stream)
                            : launch_scale<__nv_bfloat16>(weight, factors, rows, cols, stream);
}

cudaError_t narrow_floats(Half type, void* out, const float* values, int64_t count,
                          cudaStream_t stream) {
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  if (blocks == 0) return cudaSuccess;
  if (type == Half::kF16) {
    narrow<<<blocks, kThreads, 0, stream>>>(static_cast<__half*>(out), values, count);
  } else {
    narrow<<<blocks, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(out), values, count);
  }
  return cudaGetLastError();
}

cudaError_t fill_dummy_rows(const Tensor& rows, const DummyRows& numbers, cudaStream_t stream) {
  switch (rows.dtype) {
    case DType::kF32:
      return launch<float>(rows, numbers, stream);
    case DType::kF16:
      return launch<__half>(rows, numbers, stream);
    case DType::kBF16:
      return launch<__nv_bfloat16>(rows, numbers, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace inferd::cuda
