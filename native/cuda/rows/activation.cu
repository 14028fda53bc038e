// 1. out = gate(g) * u, gate(x) = x / (1 + exp(-x)), or 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715
//    x^3))), or the clamped one of core/gate.h; g is the first half of each row, u the second. And:
//    inout += scale * x; x = scale * x or, capped, cap tanh(scale * x / cap). And rows times the
//    sigmoid of a number each.
// 2. gate_up [rows, 2 * width], out [rows, width], f16 or bf16, packed, 16-byte aligned; width a
//    multiple of 8.
// 3. A thread owns 8 neighbouring outputs; the grid covers rows * width / 8 of them.
// 4. No shared memory, about 30 registers.
// 5. f32 arithmetic, rounded once to 16 bits: relative error 2^-9 (bf16), 2^-11 (f16).
// 6. Any architecture from sm_80; a width that is not a multiple of 8 is cudaErrorInvalidValue.
// 7. Bytes 6 * rows * width; bound by memory in prefill, by launch in decode.
// 8. SwiGLU, Shazeer 2020; GELU, Hendrycks and Gimpel 2016 (the tanh form).
// 9. Two outputs a thread with 4-byte accesses: half the bandwidth on an H200. tanh is taken from
//    one exponential, 1 - 2 / (1 + exp(2 y)), which costs as much as silu.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/rows/activation.h"
#include "cuda/rows/gate_values.cuh"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, Gate kGate>
__global__ void gated_mul_kernel(T* out, const T* gate_up, int64_t total, Divisor groups) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  let_next_start();
  wait_for_previous();
  if (at >= total) return;
  const int64_t row = groups.divide(static_cast<int32_t>(at));
  const int64_t width = static_cast<int64_t>(groups.value) * 8;
  const T* gate = gate_up + row * width + at * 8;  // row * 2 * width + (at - row * groups) * 8
  const Vec8<T> g = load8(gate), u = load8(gate + width);
  Vec8<T> y;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    y.v[j] = from_float<T>(gated_value<kGate>(to_float(g.v[j]), to_float(u.v[j])));
  }
  store8(out + at * 8, y);
}

template <typename T>
__global__ void add_kernel(T* inout, const T* x, int64_t total, float scale) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  let_next_start();
  wait_for_previous();
  if (at >= total) return;
  const Vec8<T> a = load8(inout + at * 8), b = load8(x + at * 8);
  Vec8<T> y;
#pragma unroll
  for (int j = 0; j < 8; ++j)
    y.v[j] = from_float<T>(fmaf(scale, to_float(b.v[j]), to_float(a.v[j])));
  store8(inout + at * 8, y);
}

template <typename T>
__global__ void gate_rows_kernel(T* inout, const float* logits, int64_t logit_stride, int64_t total,
                                 Divisor groups) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  let_next_start();
  wait_for_previous();
  if (at >= total) return;
  const float logit = logits[groups.divide(static_cast<int32_t>(at)) * logit_stride];
  const float factor = __fdividef(1.f, 1.f + __expf(-logit));
  const Vec8<T> x = load8(inout + at * 8);
  Vec8<T> y;
#pragma unroll
  for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(to_float(x.v[j]) * factor);
  store8(inout + at * 8, y);
}

// 1 - 2 / (1 + exp(2 y)): off by some 1e-7 of the cap, which logits bear.
__global__ void cap_kernel(float* x, int64_t total, float factor, float cap) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  let_next_start();
  wait_for_previous();
  if (at >= total) return;
  const float y = x[at] * factor;
  x[at] = cap > 0.f ? cap - 2.f * cap / (1.f + __expf(2.f * y)) : y;
}

LaunchShape cover(int64_t total) {
  return {.grid = dim3(static_cast<unsigned>((total + kThreads - 1) / kThreads)),
          .threads = kThreads};
}

template <typename T>
cudaError_t gated(Gate gate, void* out, const void* gate_up, int64_t rows, int32_t width,
                  const Launch& launch) {
  const int32_t groups = width / 8;
  const auto kernel = gate == Gate::kSilu       ? gated_mul_kernel<T, Gate::kSilu>
                      : gate == Gate::kGeluTanh ? gated_mul_kernel<T, Gate::kGeluTanh>
                                                : gated_mul_kernel<T, Gate::kClampedSwiglu>;
  // Groups are counted in 31 bits; longer inputs go in pieces of whole rows.
  const int64_t piece = (int64_t{1} << 30) / groups;
  for (int64_t row = 0; row < rows; row += piece) {
    const int64_t count = rows - row < piece ? rows - row : piece;
    const cudaError_t error = launch_kernel(
        kernel, cover(count * groups), launch, static_cast<T*>(out) + row * width,
        static_cast<const T*>(gate_up) + row * 2 * width, count * groups, Divisor::of(groups));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t gated_mul(Half type, Gate gate, void* out, const void* gate_up, int64_t rows,
                      int32_t width, const Launch& launch) {
  if (width <= 0 || width % 8 != 0 || rows < 0) return cudaErrorInvalidValue;
  return type == Half::kBF16 ? gated<__nv_bfloat16>(gate, out, gate_up, rows, width, launch)
                             : gated<__half>(gate, out, gate_up, rows, width, launch);
}

cudaError_t add(Half type, void* inout, const void* x, int64_t count, float scale,
                const Launch& launch) {
  if (count < 0 || count % 8 != 0) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  const int64_t total = count / 8;
  if (type == Half::kBF16) {
    return launch_kernel(add_kernel<__nv_bfloat16>, cover(total), launch,
                         static_cast<__nv_bfloat16*>(inout), static_cast<const __nv_bfloat16*>(x),
                         total, scale);
  }
  return launch_kernel(add_kernel<__half>, cover(total), launch, static_cast<__half*>(inout),
                       static_cast<const __half*>(x), total, scale);
}

cudaError_t gate_rows(Half type, void* inout, const float* logits, int64_t logit_stride,
                      int64_t rows, int32_t width, const Launch& launch) {
  if (width <= 0 || width % 8 != 0 || rows < 0 || rows * (width / 8) > INT32_MAX)
    return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const int32_t groups = width / 8;
  const int64_t total = rows * groups;
  if (type == Half::kBF16) {
    return launch_kernel(gate_rows_kernel<__nv_bfloat16>, cover(total), launch,
                         static_cast<__nv_bfloat16*>(inout), logits, logit_stride, total,
                         Divisor::of(groups));
  }
  return launch_kernel(gate_rows_kernel<__half>, cover(total), launch, static_cast<__half*>(inout),
                       logits, logit_stride, total, Divisor::of(groups));
}

cudaError_t cap_logits(float* x, int64_t count, float scale, float cap, const Launch& launch) {
  if (count < 0 || count / kThreads >= INT32_MAX) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  return launch_kernel(cap_kernel, cover(count), launch, x, count, cap > 0.f ? scale / cap : scale,
                       cap);
}

}  // namespace inferd::cuda
