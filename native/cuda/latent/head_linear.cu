// 1. out_h = x_h W_h^T for each head h: what latent attention multiplies queries by before, and its
//    results after.
// 2. x [tokens, inputs] and out [tokens, outputs] of each head as columns of wider rows, W_h
//    [outputs, inputs], all f16 or bf16.
// 3. Up to 64 tokens: slices of the inputs (device/slice_products.cuh), 16 outputs of a head a
// block.
//    More: block (x = 32 outputs, y = head, z = 64 tokens) of 4 warps; a warp does 16 tokens by 32
//    outputs, by mma.m16n8k16. Warps without tokens leave.
// 4. No shared memory: fragments come from global memory as pairs of values; the warps of a block
//    read the same weights, through L1.
// 5. f32 sums over all inputs, rounded once.
// 6. From sm_80; any even sizes.
// 7. Decode reads each weight once and is bound by that. Not measured yet.
// 8. Absorption of the up-projections: DeepSeek-V2 (2024), section 2.1.
// 9. For few tokens the second way took 20 us of 16 heads by 512 by 128: a chain of loads.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/slice_products.cuh"
#include "cuda/latent/head_linear.h"

namespace inferd::cuda {
namespace {

constexpr int kWarps = 4, kWarpTokens = 16, kColumns = 32, kTiles = kColumns / 8, kDepth = 16;

// Two neighbouring values, or zeros.
template <typename T>
__device__ uint32_t pair_at(const T* row, int column, int columns, bool live) {
  return live && column < columns ? *reinterpret_cast<const uint32_t*>(row + column) : 0u;
}

template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp) head_linear_kernel(const HeadLinearParams p) {
  wait_for_previous();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int head = blockIdx.y, first_output = blockIdx.x * kColumns;
  const int first_token = (blockIdx.z * kWarps + warp) * kWarpTokens;
  if (first_token >= p.tokens) return;
  const T* x = static_cast<const T*>(p.x) + head * p.x_step;
  const T* weight = static_cast<const T*>(p.weight) + head * p.head_rows * p.inputs;
  const int low = first_token + g, high = low + 8;
  const T* low_row = x + low * p.x_stride;
  const T* high_row = x + high * p.x_stride;
  float sums[kTiles][4] = {};
  for (int k = 0; k < p.inputs; k += kDepth) {
    const int at = k + 2 * t;
    const uint32_t a0 = pair_at(low_row, at, p.inputs, low < p.tokens);
    const uint32_t a1 = pair_at(high_row, at, p.inputs, high < p.tokens);
    const uint32_t a2 = pair_at(low_row, at + 8, p.inputs, low < p.tokens);
    const uint32_t a3 = pair_at(high_row, at + 8, p.inputs, high < p.tokens);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int output = first_output + n * 8 + g;
      const T* row = weight + static_cast<int64_t>(output) * p.inputs;
      const bool live = output < p.outputs;
      mma16816<T>(sums[n], a0, a1, a2, a3, pair_at(row, at, p.inputs, live),
                  pair_at(row, at + 8, p.inputs, live));
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int output = first_output + n * 8 + 2 * t;
    if (output >= p.outputs) continue;
    T* out = static_cast<T*>(p.out) + head * p.out_step + output;
    if (low < p.tokens)
      *reinterpret_cast<uint32_t*>(out + low * p.out_stride) = pack2<T>(sums[n][0], sums[n][1]);
    if (high < p.tokens)
      *reinterpret_cast<uint32_t*>(out + high * p.out_stride) = pack2<T>(sums[n][2], sums[n][3]);
  }
}

// Few tokens: block (x = 16 outputs, y = head, z = tokens), by slices of the inputs. Sizes, strides
// and steps are multiples of 8.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kSliceWarps* kWarp) few_rows_kernel(const HeadLinearParams p) {
  __shared__ SliceSums<1, kColumns> slices;
  let_next_start();
  const int lane = threadIdx.x % kWarp, g = lane / 4, head = blockIdx.y;
  const int first_output = blockIdx.x * kSliceOutputs;
  const int first_token = blockIdx.z * kColumns * kSliceTokens;
  // Weights are under way while this waits.
  const auto rows_of_x = [&](const T*(&x)[kColumns]) {
    wait_for_previous();
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const int token = min(first_token + n * kSliceTokens + g, p.tokens - 1);
      x[n] = static_cast<const T*>(p.x) + token * p.x_stride + head * p.x_step;
    }
  };
  const T* w[1][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = head * p.head_rows + min(first_output + half * 8 + g, p.outputs - 1);
    w[0][half] = static_cast<const T*>(p.weight) + row * p.inputs;
  }
  float sums[1][kColumns][4] = {};
  multiply_slices<T, 2>(sums, w, rows_of_x, p.inputs);
  share_slices(sums, slices);
  const int output = threadIdx.x % kSliceOutputs, mine = threadIdx.x / kSliceOutputs;
  if (first_output + output >= p.outputs) return;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int token = first_token + n * kSliceTokens + mine;
    if (token >= p.tokens) return;
    static_cast<T*>(p.out)[token * p.out_stride + head * p.out_step + first_output + output] =
        from_float<T>(slices.sum(0, n, output, mine));
  }
}

template <typename T, int kColumns>
cudaError_t run_few_rows(const HeadLinearParams& p, const Launch& launch) {
  constexpr int kTokens = kColumns * kSliceTokens;
  return launch_kernel(
      few_rows_kernel<T, kColumns>,
      {.grid = dim3(static_cast<unsigned>((p.outputs + kSliceOutputs - 1) / kSliceOutputs),
                    static_cast<unsigned>(p.heads),
                    static_cast<unsigned>((p.tokens + kTokens - 1) / kTokens)),
       .threads = kSliceWarps * kWarp},
      launch, p);
}

constexpr int kFewTokens = 64;

template <typename T>
cudaError_t run_few_rows(const HeadLinearParams& p, const Launch& launch) {
  return p.tokens <= kSliceTokens ? run_few_rows<T, 1>(p, launch) : run_few_rows<T, 4>(p, launch);
}

}  // namespace

cudaError_t head_linear(Half type, const HeadLinearParams& p, const Launch& launch) {
  if ((p.out_stride | p.out_step | p.x_stride | p.x_step | p.outputs | p.inputs) % 2 != 0 ||
      p.heads <= 0 || p.outputs <= 0 || p.inputs <= 0 || p.tokens < 0) {
    return cudaErrorInvalidValue;
  }
  if (p.tokens == 0) return cudaSuccess;
  const auto x = reinterpret_cast<uintptr_t>(p.x);
  if (p.tokens <= kFewTokens && x % 16 == 0 && (p.x_stride | p.x_step | p.inputs) % 8 == 0) {
    return type == Half::kBF16 ? run_few_rows<__nv_bfloat16>(p, launch)
                               : run_few_rows<__half>(p, launch);
  }
  const int block_tokens = kWarps * kWarpTokens;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>((p.outputs + kColumns - 1) / kColumns),
                   static_cast<unsigned>(p.heads),
                   static_cast<unsigned>((p.tokens + block_tokens - 1) / block_tokens)),
      .threads = kWarps * kWarp};
  return type == Half::kBF16 ? launch_kernel(head_linear_kernel<__nv_bfloat16>, shape, launch, p)
                             : launch_kernel(head_linear_kernel<__half>, shape, launch, p);
}

}  // namespace inferd::cuda
