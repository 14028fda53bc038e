// 1. Per head of q and k: optional RMSNorm over head_dim, then (x_i, x_{i+r/2}) rotated by
//    position * inv_freq_i for i < r/2 (r = rotary_dim, half-split pairing); q goes back in place,
//    k and v to `position` of the sequence's paged cache; in int8, by a scale of its own for each
//    row of a head, its largest absolute value / 127, which goes to the end of the block. Most
//    decode steps do this within attention instead: attention_decode_rope.cuh.
// 2. qkv [tokens, (heads + 2 kv_heads) * head_dim] f16/bf16 in and out; caches as in paged_kv.h of
//    the same type, e4m3 (of what is left after division by a scale) or int8; inv_freq [rotary_dim
//    / 2] f32.
// 3. Block (x = token, y = share of the heads). A head is held by kLanes lanes (8, 16 or 32), 8
//    neighbouring dims each; the partner of a pair is in another lane of the same head:
//
//        dims   0..7  8..15 ... r/2-8..    r/2..    ...  r-8..    r.. (not rotated)
//        lane   0     1         r/16-1     r/16          r/8-1
//               `---- x_i ----------'      `---- x_{i+r/2} --'
//
// 4. Shared memory: cos and sin of the token, rotary_dim / 2 pairs. About 40 registers.
// 5. f32; the angle is reduced in double so that position 10^6 keeps 24 bits. One rounding to 16
//    bits, to e4m3 (saturating), or to the nearest of -127..127 times the scale.
// 6. From sm_80; other shapes are cudaErrorInvalidValue.
// 7. Bytes about 4 * tokens * (heads + 2 kv_heads) * head_dim; bound by launch in decode, by memory
//    in prefill: H200, 32/8 heads of 128, 121 us for 16384 tokens (74 % of the read ceiling), 3.5
//    us for 128 and 1.1 for one with early starts; int8 0.6 us more for 128.
// 8. RoFormer (Su et al. 2021); paged cache as in PagedAttention (Kwon et al. 2023).
// 9. Fetching the next head while one is computed: 138 instead of 122 us for 16384 tokens of 32/8
//    heads of 128 on an H200 (more registers, fewer warps). Sines a head instead of a token: six
//    times the double arithmetic. Tables of all positions: 64 MB at 128k positions.
#include <cuda_fp8.h>

#include "cuda/attention/rope_kv.h"
#include "cuda/attention/rope_turn.cuh"
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 128, kMaxHeadDim = 256;
constexpr float kInt8Most = 127.f;
constexpr int kManyTokens = 512;  // from here one block does all heads of its token

// Values first .. first + 8 of row `row` of a block; `largest` is the largest of the whole row,
// `scale` k_scale or v_scale.
template <typename T>
__device__ void store_cache(uint8_t* block, const RopeKvParams& p, int row, int first,
                            const float (&x)[8], float largest, float scale) {
  const int at = row * p.head_dim + first;
  if (p.kv_type == KvType::kActivation) {
    Vec8<T> y;
#pragma unroll
    for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(x[j]);
    store8(reinterpret_cast<T*>(block) + at, y);
    return;
  }
  union {
    uint2 words;
    uint8_t bytes[8];
  } y;
  const float inverse = largest > 1e-30f ? kInt8Most / largest : 0.f;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    y.bytes[j] = p.kv_type == KvType::kFloat8
                     ? __nv_cvt_float_to_fp8(x[j] / scale, __NV_SATFINITE, __NV_E4M3)
                     : static_cast<uint8_t>(
                           __float2int_rn(fminf(fmaxf(x[j] * inverse, -kInt8Most), kInt8Most)));
  }
  *reinterpret_cast<uint2*>(block + at) = y.words;
  if (p.kv_type == KvType::kInt8 && first == 0) {
    uint8_t* scales = block + p.kv_heads * p.block_size * p.head_dim;
    reinterpret_cast<float*>(scales)[row] = largest / kInt8Most;
  }
}

template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads) rope_kv_kernel(const RopeKvParams p) {
  __shared__ float2 turn[kMaxHeadDim / 2];  // cos, sin
  let_next_start();
  constexpr int kHeads = kThreads / kLanes;
  const int token = blockIdx.x, lane = threadIdx.x % kLanes, first = lane * 8;
  const int half = p.rotary_dim / 2, all = p.heads + 2 * p.kv_heads;
  // Where the token is does not change while what comes before this kernel runs: see rope_kv.h.
  const int position = __ldcg(p.positions + token);
  const int32_t slot = __ldcg(p.token_slots + token);
  const int32_t block = position < 0
                            ? 0
                            : __ldcg(p.block_tables + static_cast<int64_t>(slot) * p.max_blocks +
                                     position / p.block_size);
  if (threadIdx.x < half) {
    turn[threadIdx.x] = turn_of(position, p.inv_freq[threadIdx.x], p.attention_factor);
  }
  __syncthreads();
  wait_for_previous();
  if (position < 0) return;
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
        x[j] = turned(x[j], low ? -other : other, turn[first - (low ? 0 : half) + j]);
      }
    }
    float largest = 0.f;
    if (p.kv_type == KvType::kInt8) {
#pragma unroll
      for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fabsf(x[j]));
#pragma unroll
      for (int apart = kLanes / 2; apart > 0; apart /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, apart));
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
    uint8_t* cache = static_cast<uint8_t*>(is_v ? p.v_cache : p.k_cache);
    store_cache<T>(cache + block * p.block_bytes, p,
                   kv_head * p.block_size + position % p.block_size, first, x, largest,
                   is_v ? p.v_scale : p.k_scale);
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
  if (p.head_dim <= 0 || p.head_dim % 8 != 0 || p.head_dim > kMaxHeadDim || p.rotary_dim < 0 ||
      p.rotary_dim > p.head_dim || p.rotary_dim % 16 != 0 || p.heads <= 0 || p.kv_heads <= 0 ||
      p.block_size <= 0 || p.tokens < 0) {
    return cudaErrorInvalidValue;
  }
  if (p.tokens == 0) return cudaSuccess;
  return type == Half::kBF16 ? dispatch<__nv_bfloat16>(p, launch) : dispatch<__half>(p, launch);
}

}  // namespace inferd::cuda
