// 1. y = (scale *) (x_0 + x_1 + ..) (+ y) of parts in the order of ranks: with them gathered by
//    NCCL the sum has the same bits on all ranks, which are those of collectives.cu. Or parts side
//    by side: row r of `out` is row r of each part.
// 2. gathered [parts, values] packed, inout [values], out [rows, parts * row]: 8-byte aligned; f16,
//    bf16 or f32.
// 3. A thread a group of 8 bytes, by turns of the grid; thread 0 of block 0 also tells the host
//    that the collective is over.
// 4. No shared memory, at most 40 registers.
// 5. f32 sums, rounded once.
// 6. Any number of parts.
// 7. parts + 1 reads (+ 1) and a write of each byte, bound by memory. Not measured: see README.md.
// 8. No source: sums in a fixed order.
// 9. NCCL's own sums: rounded at each hop and, of more ranks than two, in another order for each
//    part of a row. They are taken for large messages of more ranks than two, whose parts would
//    weigh more on the links.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/ranks/nccl/gathered.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksEach = 4;  // on a multiprocessor, at most

__device__ void step_on(const Progress& progress) {
  const uint32_t passed = *progress.passed + 1;
  *progress.passed = passed;
  *reinterpret_cast<volatile uint32_t*>(progress.seen) = passed;
  __threadfence_system();
}

__global__ void begin_kernel(const Progress progress) {
  wait_for_previous();
  step_on(progress);
}

__device__ void note_end(const Progress& progress) {
  if (blockIdx.x == 0 && threadIdx.x == 0) step_on(progress);
}

template <typename T, bool kResidual>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const Progress progress, T* inout, const uint2* x, int parts, float scale,
               int64_t groups) {
  constexpr int kValues = sizeof(uint2) / sizeof(T);
  let_next_start();
  wait_for_previous();
  note_end(progress);
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < groups; i += step) {
    float sum[kValues] = {};
    for (int part = 0; part < parts; ++part) {
      const uint2 group = x[part * groups + i];
      const T* values = reinterpret_cast<const T*>(&group);
#pragma unroll
      for (int v = 0; v < kValues; ++v) sum[v] += to_float(values[v]);
    }
    uint2* place = reinterpret_cast<uint2*>(inout) + i;
    uint2 result = kResidual ? *place : uint2{};
    T* y = reinterpret_cast<T*>(&result);
#pragma unroll
    for (int v = 0; v < kValues; ++v)
      y[v] = from_float<T>(kResidual ? fmaf(scale, sum[v], to_float(y[v])) : sum[v]);
    *place = result;
  }
}

__global__ void __launch_bounds__(kThreads)
    place_kernel(const Progress progress, uint2* out, const uint2* gathered, int parts,
                 int64_t rows, int64_t width) {
  let_next_start();
  wait_for_previous();
  note_end(progress);
  const int64_t groups = rows * width, all = groups * parts;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const int64_t part = i / groups, row = i % groups / width, at = i % width;
    out[(row * parts + part) * width + at] = gathered[i];
  }
}

LaunchShape shape_of(int64_t groups, int32_t sm_count) {
  const int64_t wanted = (groups + kThreads - 1) / kThreads;
  const int64_t blocks = max(int64_t{1}, min(wanted, int64_t{sm_count} * kBlocksEach));
  return {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kThreads};
}

template <typename T>
cudaError_t sum_parts(const Progress& progress, const SumArgs& a, int32_t parts, int32_t sm_count,
                      const Launch& launch) {
  const int64_t bytes = a.count * static_cast<int64_t>(sizeof(T));
  if (bytes % 8 != 0 || parts < 1) return cudaErrorInvalidValue;
  return launch_kernel(a.residual ? sum_kernel<T, true> : sum_kernel<T, false>,
                       shape_of(bytes / 8, sm_count), launch, progress, static_cast<T*>(a.inout),
                       static_cast<const uint2*>(a.x), int{parts}, a.scale, bytes / 8);
}

}  // namespace

cudaError_t note_begin(const Progress& progress, const Launch& launch) {
  return launch_kernel(begin_kernel, {.grid = dim3(1), .threads = 1}, launch, progress);
}

cudaError_t sum_gathered(const Progress& progress, const SumArgs& args, int32_t parts,
                         int32_t sm_count, const Launch& launch) {
  switch (args.type) {
    case SumType::kF16:
      return sum_parts<__half>(progress, args, parts, sm_count, launch);
    case SumType::kBF16:
      return sum_parts<__nv_bfloat16>(progress, args, parts, sm_count, launch);
    case SumType::kF32:
      return sum_parts<float>(progress, args, parts, sm_count, launch);
  }
  return cudaErrorInvalidValue;
}

cudaError_t place_gathered(const Progress& progress, const Gathered& what, int32_t sm_count,
                           const Launch& launch) {
  if (what.row_bytes % 8 != 0 || what.row_bytes == 0 || what.parts < 1)
    return cudaErrorInvalidValue;
  const int64_t width = what.row_bytes / 8;
  return launch_kernel(place_kernel, shape_of(what.rows * width * what.parts, sm_count), launch,
                       progress, static_cast<uint2*>(what.out),
                       static_cast<const uint2*>(what.gathered), int{what.parts}, what.rows, width);
}

}  // namespace inferd::cuda
