// 1. out_h = x_h W_h^T for each head h: what latent attention multiplies queries by before, and its
//    results after.
// 2. x [tokens, inputs] and out [tokens, outputs] of each head as columns of wider rows, W_h
//    [outputs, inputs], all f16 or bf16.
// 3. Block (x = 32 outputs, y = head, z = 64 tokens) of 4 warps; a warp does 16 tokens by 32
//    outputs, by mma.m16n8k16. Warps without tokens leave.
// 4. No shared memory: fragments come from global memory as pairs of values; the warps of a block
//    read the same weights, through L1.
// 5. f32 sums over all inputs, rounded once.
// 6. From sm_80; any even sizes.
// 7. Decode reads each weight once and is bound by that. Not measured yet.
// 8. Absorption of the up-projections: DeepSeek-V2 (2024), section 2.1.
// 9. A first version, for its results: no asynchronous copies.
#include "cuda/latent/head_linear.h"
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"

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

}  // namespace

cudaError_t head_linear(Half type, const HeadLinearParams& p, const Launch& launch) {
  if ((p.out_stride | p.out_step | p.x_stride | p.x_step | p.outputs | p.inputs) % 2 != 0 ||
      p.heads <= 0 || p.outputs <= 0 || p.inputs <= 0 || p.tokens < 0) {
    return cudaErrorInvalidValue;
  }
  if (p.tokens == 0) return cudaSuccess;
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
