// 1. Of each token: (x_i, x_{i+r/2}) of its rotated parts, of every head of q and of the latent,
//    turned by position * inv_freq_i (r = rotary_dim, half-split pairing); RMSNorm of the first
//    `rank` values of the latent; both to `position` of the sequence's paged cache, in int8 by a
//    scale of the whole row, its largest absolute value / 127, which goes to the end of the block.
// 2. As LatentCacheParams says; inputs f16 or bf16, the cache of that type, e4m3 or int8.
// 3. Block (x = token) of 128 threads: values of the latent, then pairs of the heads, in turn.
// 4. Shared memory: cos and sin of the token, the latent in f32 (4 KB), a float a warp.
// 5. f32; the angle is reduced in double. One rounding to the type of the result.
// 6. From sm_80; head_dim up to 1024, rotary_dim even and up to 256.
// 7. Bound by launch in decode. Not measured yet.
// 8. RoFormer (Su et al. 2021); DeepSeek-V2 (2024), section 2.1.3: decoupled rotary embedding.
// 9. A first version, for its results: single values are moved, not vectors.
#include <cuda_fp8.h>

#include "cuda/attention/rope_turn.cuh"
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/latent/latent_cache.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 128, kMostDim = 1024, kMostRotary = 256;
constexpr float kInt8Most = 127.f;

// Value `i` of row `row` of a block.
template <typename T>
__device__ void store_value(uint8_t* block, const PagedKv& kv, int row, int i, float x,
                            float largest) {
  const int at = row * kv.head_dim + i;
  if (kv.type == KvType::kActivation) {
    reinterpret_cast<T*>(block)[at] = from_float<T>(x);
  } else if (kv.type == KvType::kFloat8) {
    block[at] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  } else {
    const float inverse = largest > 1e-30f ? kInt8Most / largest : 0.f;
    reinterpret_cast<int8_t*>(block)[at] =
        static_cast<int8_t>(__float2int_rn(fminf(fmaxf(x * inverse, -kInt8Most), kInt8Most)));
    if (i == 0)
      reinterpret_cast<float*>(block + kv.block_size * kv.head_dim)[row] = largest / kInt8Most;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) latent_cache_kernel(const LatentCacheParams p) {
  __shared__ float2 turn[kMostRotary / 2];  // cos, sin
  __shared__ float row[kMostDim];
  __shared__ float scratch[kThreads / kWarp];
  let_next_start();
  wait_for_previous();
  const int token = blockIdx.x, half = p.rotary_dim / 2;
  const int dim = p.kv.head_dim, rank = dim - p.rotary_dim;
  const int position = p.positions[token];
  if (position < 0) return;
  for (int i = threadIdx.x; i < half; i += kThreads)
    turn[i] = turn_of(position, p.inv_freq[i], p.attention_factor);
  const T* latent = static_cast<const T*>(p.latent) + token * p.latent_stride;
  float squares = 0.f;
  for (int i = threadIdx.x; i < dim; i += kThreads) {
    row[i] = to_float(latent[i]);
    if (i < rank) squares = fmaf(row[i], row[i], squares);
  }
  const float scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(rank) + p.norm_eps);
  // Each thread its own values again; of a pair one thread turns both.
  for (int i = threadIdx.x; i < rank; i += kThreads) row[i] *= scale * p.norm[i];
  for (int i = threadIdx.x; i < half; i += kThreads) {
    const float a = row[rank + i], b = row[rank + half + i];
    row[rank + i] = a * turn[i].x - b * turn[i].y;
    row[rank + half + i] = b * turn[i].x + a * turn[i].y;
  }
  __syncthreads();
  float largest = 0.f;
  if (p.kv.type == KvType::kInt8) {
    for (int i = threadIdx.x; i < dim; i += kThreads) largest = fmaxf(largest, fabsf(row[i]));
    largest = warp_max(largest);
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = largest;
    __syncthreads();
    for (int i = 0; i < kThreads / kWarp; ++i) largest = fmaxf(largest, scratch[i]);
  }
  const int32_t block =
      p.kv.block_tables[static_cast<int64_t>(p.token_slots[token]) * p.kv.max_blocks +
                        position / p.kv.block_size];
  uint8_t* to = static_cast<uint8_t*>(p.cache) + block * p.kv.block_bytes;
  for (int i = threadIdx.x; i < dim; i += kThreads)
    store_value<T>(to, p.kv, position % p.kv.block_size, i, row[i], largest);
  const T* q = static_cast<const T*>(p.q) + token * p.q_stride + p.nope_dim;
  T* queries = static_cast<T*>(p.queries) + static_cast<int64_t>(token) * p.heads * dim + rank;
  for (int i = threadIdx.x; i < p.heads * half; i += kThreads) {
    const int head = i / half, j = i % half;
    const T* from = q + head * (p.nope_dim + p.rotary_dim);
    const float a = to_float(from[j]), b = to_float(from[half + j]);
    queries[head * dim + j] = from_float<T>(a * turn[j].x - b * turn[j].y);
    queries[head * dim + half + j] = from_float<T>(b * turn[j].x + a * turn[j].y);
  }
}

}  // namespace

cudaError_t latent_cache(Half type, const LatentCacheParams& p, const Launch& launch) {
  if (p.kv.head_dim > kMostDim || p.rotary_dim <= 0 || p.rotary_dim % 2 != 0 ||
      p.rotary_dim > kMostRotary || p.rotary_dim >= p.kv.head_dim || p.kv.kv_heads != 1 ||
      p.kv.block_size <= 0 || p.heads <= 0 || p.tokens < 0) {
    return cudaErrorInvalidValue;
  }
  if (p.tokens == 0) return cudaSuccess;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(p.tokens)), .threads = kThreads};
  return type == Half::kBF16 ? launch_kernel(latent_cache_kernel<__nv_bfloat16>, shape, launch, p)
                             : launch_kernel(latent_cache_kernel<__half>, shape, launch, p);
}

}  // namespace inferd::cuda
