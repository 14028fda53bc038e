// 1. Per head of q and k: optional RMSNorm over head_dim, then (x_i, x_{i+r/2}) rotated by
//    position * inv_freq_i for i < r/2 (r = rotary_dim, half-split pairing); q goes back in place,
//    k and v to `position` of the sequence's paged cache, scaled when the cache has 8 bits.
// 2. qkv [tokens, (heads + 2 kv_heads) * head_dim] f16/bf16 in and out; caches [blocks, kv_heads,
//    block_size, head_dim] of the same type, e4m3 or int8; inv_freq [rotary_dim / 2] f32.
// 3. Block (x = token, y = share of the heads). A head is held by kLanes lanes (8, 16 or 32), 8
//    neighbouring dims each; the partner of a pair is in another lane of the same head:
//
//        dims   0..7  8..15 ... r/2-8..    r/2..    ...  r-8..    r.. (not rotated)
//        lane   0     1         r/16-1     r/16          r/8-1
//               `---- x_i ----------'      `---- x_{i+r/2} --'
//
// 4. Shared memory: cos and sin of the token, rotary_dim / 2 pairs. About 40 registers.
// 5. f32; the angle is reduced in double so that position 10^6 keeps 24 bits. One rounding to 16
//    bits, to e4m3 (saturating), or to the nearest of -127..127.
// 6. From sm_80; other shapes are cudaErrorInvalidValue.
// 7. Bytes about 4 * tokens * (heads + 2 kv_heads) * head_dim; bound by launch in decode, by memory
//    in prefill.
// 8. RoFormer (Su et al. 2021); paged cache as in PagedAttention (Kwon et al. 2023).
// 9. Fetching the next head while one is computed: 138 instead of 122 us for 16384 tokens of 32/8
//    heads of 128 on an H200 (more registers, fewer warps). Sines a head instead of a token: six
//    times the double arithmetic. Tables of all positions: 64 MB at 128k positions.
#include <cuda_fp8.h>

#include "common.cuh"
#include "launch.cuh"
#include "rope_kv.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 128, kMaxHeadDim = 256;
constexpr int kManyTokens = 512;  // from here one block does all heads of its token

// Eight values of a head into the cache.
template <typename T>
__device__ void store_cache(void* cache, KvType type, int64_t at, const float (&x)[8],
                            float inverse_scale) {
  if (type == KvType::kActivation) {
    Vec8<T> y;
#pragma unroll
    for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(x[j]);
    store8(static_cast<T*>(cache) + at, y);
    return;
  }
  union {
    uint2 words;
    uint8_t bytes[8];
  } y;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float v = x[j] * inverse_scale;
    y.bytes[j] = type == KvType::kFloat8
                     ? __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3)
                     : static_cast<uint8_t>(__float2int_rn(fminf(fmaxf(v, -127.f), 127.f)));
  }
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(cache) + at) = y.words;
}

template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads) rope_kv_kernel(const RopeKvParams p) {
  __shared__ float2 turn[kMaxHeadDim / 2];  // cos, sin
  let_next_start();
  constexpr int kHeads = kThreads / kLanes;
  const int token = blockIdx.x, lane = threadIdx.x % kLanes, first = lane * 8;
  const int half = p.rotary_dim / 2, all = p.heads + 2 * p.kv_heads;
  const float frequency = threadIdx.x < half ? p.inv_freq[threadIdx.x] : 0.f;
  wait_for_previous();
  const int position = p.positions[token];
  if (position < 0) return;
  if (threadIdx.x < half) {
    constexpr double kTurn = 6.283185307179586;
    const double turns = static_cast<double>(position) * (static_cast<double>(frequency) / kTurn);
    float sin_value, cos_value;
    sincospif(static_cast<float>(2. * (turns - floor(turns))), &sin_value, &cos_value);
    turn[threadIdx.x] = make_float2(cos_value * p.attention_factor, sin_value * p.attention_factor);
  }
  const int32_t block = p.block_tables[static_cast<int64_t>(p.token_slots[token]) * p.max_blocks +
                                       position / p.block_size];
  __syncthreads();
  const bool rotated = first < p.rotary_dim, low = first < half;
  const int partner = !rotated ? lane : low ? lane + half / 8 : lane - half / 8;
  for (int start = blockIdx.y * kHeads; start < all; start += gridDim.y * kHeads) {
    const int head = start + threadIdx.x / kLanes;
    const bool is_q = head < p.heads, is_v = head >= p.heads + p.kv_heads;
    const bool live = head < all && first < p.head_dim;  // shuffles need the whole warp
    T* row = static_cast<T*>(p.qkv) + (static_cast<int64_t>(token) * all + head) * p.head_dim;
    float x[8] = {};
    if (live) {
      const Vec8<T> loaded = load8(row + first);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] = to_float(loaded.v[j]);
    }
    const float* weight = is_v ? nullptr : is_q ? p.q_norm : p.k_norm;
    if (p.q_norm != nullptr || p.k_norm != nullptr) {
      float sum = 0.f;
#pragma unroll
      for (int j = 0; j < 8; ++j) sum = fmaf(x[j], x[j], sum);
#pragma unroll
      for (int apart = kLanes / 2; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(kFullWarp, sum, apart);
      }
      if (live && weight != nullptr) {
        const float scale = rsqrtf(sum / static_cast<float>(p.head_dim) + p.norm_eps);
#pragma unroll
        for (int j = 0; j < 8; ++j) x[j] = x[j] * scale * weight[first + j];
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float other = __shfl_sync(kFullWarp, x[j], partner, kLanes);
      if (rotated && !is_v) {
        const float2 t = turn[first - (low ? 0 : half) + j];
        x[j] = x[j] * t.x + (low ? -other : other) * t.y;
      }
    }
    if (!live) continue;
    if (is_q) {
      Vec8<T> y;
#pragma unroll
      for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(x[j]);
      store8(row + first, y);
      continue;
    }
    const int kv_head = head - p.heads - (is_v ? p.kv_heads : 0);
    const float* scales = is_v ? p.v_scale : p.k_scale;
    const float inverse_scale = scales == nullptr ? 1.f : 1.f / scales[kv_head * p.scale_stride];
    const int64_t at = ((static_cast<int64_t>(block) * p.kv_heads + kv_head) * p.block_size +
                        position % p.block_size) *
                           p.head_dim +
                       first;
    store_cache<T>(is_v ? p.v_cache : p.k_cache, p.kv_type, at, x, inverse_scale);
  }
}

template <typename T, int kLanes>
cudaError_t dispatch(const RopeKvParams& p, const Launch& launch) {
  const int heads = kThreads / kLanes, all = p.heads + 2 * p.kv_heads;
  const int shares = p.tokens >= kManyTokens ? 1 : (all + heads - 1) / heads;
  return launch_kernel(
      rope_kv_kernel<T, kLanes>,
      {.grid = dim3(static_cast<unsigned>(p.tokens), static_cast<unsigned>(shares)),
       .threads = kThreads},
      launch, p);
}

template <typename T>
cudaError_t dispatch(const RopeKvParams& p, const Launch& launch) {
  if (p.head_dim <= 64) return dispatch<T, 8>(p, launch);
  return p.head_dim <= 128 ? dispatch<T, 16>(p, launch) : dispatch<T, 32>(p, launch);
}

}  // namespace

cudaError_t rope_kv(Half type, const RopeKvParams& p, const Launch& launch) {
  if (p.head_dim <= 0 || p.head_dim % 8 != 0 || p.head_dim > kMaxHeadDim || p.rotary_dim <= 0 ||
      p.rotary_dim > p.head_dim || p.rotary_dim % 16 != 0 || p.heads <= 0 || p.kv_heads <= 0 ||
      p.block_size <= 0 || p.tokens < 0) {
    return cudaErrorInvalidValue;
  }
  if (p.tokens == 0) return cudaSuccess;
  return type == Half::kBF16 ? dispatch<__nv_bfloat16>(p, launch) : dispatch<__half>(p, launch);
}

}  // namespace inferd::cuda
