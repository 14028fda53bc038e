// 1. o_h = sum_j softmax_j(scale q_h . k_j) k_j[0 .. value_dim) over the keys up to each
//    token's own position (and within its window), for every head h: one key a token serves all
//    heads, and its first part is its value.
// 2. q [tokens, heads, head_dim], o [tokens, heads, value_dim] f16/bf16; keys as in paged_kv.h with
//    one head, of the same type, e4m3 or int8.
// 3. Block (x = token and group of 16 heads, y = part of the keys) of 8 warps, which go through the
//    keys in tiles of 64; of 4 warps and 32 keys where shared memory is short (before sm_90). The
//    16 heads are the rows of mma.m16n8k16:
//
//        scores   [16 heads][64 keys]        two warps: 16 keys, each over a half of head_dim
//        output   [16 heads][value_dim]      a warp: its columns, over all keys
//
//    Where tokens are few the keys are cut into `splits` parts, and a second kernel puts the parts
//    together.
// 4. Shared memory: queries 16 rows and keys 64 rows of head_dim + 8 values, twice where keys have
//    16 bits: the next tile is copied while one is multiplied. The 8 put neighbouring rows four
//    banks apart. Scores in f32, probabilities in 16 bits: 179 KB for 576. A thread holds 80 words
//    of queries, since reading them again for every tile took a third of shared memory's time.
// 5. Products of 16-bit values, sums in f32; probabilities are rounded to 16 bits before they meet
//    the values, and summed before. 8-bit keys are widened to 16 bits on their way in.
// 6. From sm_80. value_dim 64, 128, 256 or 512; head_dim a multiple of 16, above value_dim, up to
//    640; any number of heads: rows past the last are zeros.
// 7. Decode is bound by the cache: heads / 16 reads of it, from L2 after the first. H200: 16 heads,
//    64 x 8192 keys 230 us (2629 GB/s of 4450), 64 x 1024 48 us; 128 heads 88 TFLOP/s.
// 8. FlashAttention (Dao et al. 2022) for one pass over keys, Flash-Decoding (2023) for its parts,
//    DeepSeek-V2 (2024) for what is attended to.
// 9. Keys through registers, each behind the block table's entry: 846 us at 64 x 8192, 121 at
//    64 x 1024. Tiles of 32 keys by 4 warps, two blocks a multiprocessor: 247 and 51. Prompts take
//    a token a block and nothing is expanded, which is slow. Parts put together one after the
//    other, those without keys too, and kernels of this folder that let none behind them start
//    early: DeepSeek-V2-Lite on an H100 2.72 ms a step for 2.58.
#include <cuda_fp8.h>

#include <algorithm>

#include "cuda/device/common.cuh"
#include "cuda/device/device_limits.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/latent/latent_attention.h"
#include "cuda/latent/latent_attention_sm90.h"
#include "cuda/latent/latent_parts.cuh"

namespace inferd::cuda {
namespace {

constexpr int kRows = kPartHeads, kPad = 8, kMergeThreads = 128;
constexpr int kMostHeadDim = 640, kMostSplits = 32, kLeastKeys = 64;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kTurnCost = 0.01f;  // of a block that begins and ends, in the time of whole keys

// Eight values of a key, from `at` of row `row` of a block, as 16 bits.
template <typename T>
__device__ Vec8<T> load_key(const uint8_t* block, const PagedKv& kv, int row, int at) {
  const int first = row * kv.head_dim + at;
  if (kv.type == KvType::kActivation) return load8(reinterpret_cast<const T*>(block) + first);
  const uint2 words = *reinterpret_cast<const uint2*>(block + first);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&words);
  const float scale = kv.type == KvType::kInt8
                          ? reinterpret_cast<const float*>(block + kv.block_size * kv.head_dim)[row]
                          : 1.f;
  Vec8<T> out;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float x = kv.type == KvType::kInt8
                        ? static_cast<float>(static_cast<int8_t>(bytes[j])) * scale
                        : __half2float(__half(__nv_cvt_fp8_to_halfraw(bytes[j], __NV_E4M3)));
    out.v[j] = from_float<T>(x);
  }
  return out;
}

// What follows from the warps of a block: tiles of 8 keys a warp. Scores: a warp multiplies 16 keys
// by one half of the columns, with its queries in registers. Values: a warp has its columns of all
// keys.
template <int kWarps>
struct Shape {
  static constexpr int kThreads = kWarps * kWarp, kKeys = 8 * kWarps, kKeyGroups = kWarps / 2;
  static constexpr int kScoreRow = kKeys + 4, kProbabilityRow = kKeys + 8;
  static constexpr int kMostSteps = (kMostHeadDim / 16 + 1) / 2;
};

// Starts the copies of keys base .. base + kKeys - 1, of those before `end`, to rows of shared
// memory, zeros for the rest. Four neighbouring threads have a row, so that each finds its block
// once.
template <typename T>
__device__ void copy_keys(const PagedKv& kv, const int32_t* table, int base, int end, T* keys,
                          int row_step) {
  const int row = threadIdx.x / 4, key = base + row;
  const bool live = key < end;
  const auto* from = static_cast<const T*>(kv.k);
  if (live) {
    const int number = key / kv.block_size;
    const auto* block = static_cast<const uint8_t*>(kv.k) + table[number] * kv.block_bytes;
    from = reinterpret_cast<const T*>(block) + (key - number * kv.block_size) * kv.head_dim;
  }
  for (int at = threadIdx.x % 4 * 8; at < kv.head_dim; at += 32)
    copy16_async_or_zero(keys + row * row_step + at, from + (live ? at : 0), live);
}

template <typename T, int kValueDim, int kWarps, bool kAhead>
__global__ void __launch_bounds__(Shape<kWarps>::kThreads)
    latent_attention_kernel(const LatentAttentionParams p) {
  using S = Shape<kWarps>;
  constexpr int kThreads = S::kThreads, kKeys = S::kKeys;
  constexpr int kScoreRow = S::kScoreRow, kProbabilityRow = S::kProbabilityRow;
  // Two tiles of 8 columns or more for each warp that has any.
  constexpr int kColumnWarps = kValueDim / 16 < kWarps ? kValueDim / 16 : kWarps;
  constexpr int kWarpColumns = kValueDim / kColumnWarps, kTiles = kWarpColumns / 8;
  static_assert(kTiles % 2 == 0 && kThreads == 4 * kKeys);
  extern __shared__ __align__(16) uint8_t shared[];
  wait_for_previous();
  let_next_start();
  const int dim = p.kv.head_dim, row_step = dim + kPad;
  T* queries = reinterpret_cast<T*>(shared);
  T* keys = queries + kRows * row_step;
  T* probabilities = keys + (kAhead ? 2 : 1) * kKeys * row_step;
  float* scores = reinterpret_cast<float*>(probabilities + kRows * kProbabilityRow);
  float* alphas = scores + 2 * kRows * kScoreRow;

  const int groups = (p.heads + kRows - 1) / kRows;
  const int token = blockIdx.x / groups, first_head = blockIdx.x % groups * kRows;
  const int position = p.positions[token];
  if (position < 0) return;
  const int oldest = p.window > 0 ? max(0, position - p.window + 1) : 0;
  // Whole tiles, counted from the oldest key.
  const int tiles = (position + 1 - oldest + kKeys - 1) / kKeys;
  const int part_tiles = (tiles + p.splits - 1) / p.splits;
  const int first_key = oldest + static_cast<int>(blockIdx.y) * part_tiles * kKeys;
  const int end_key = min(position + 1, first_key + part_tiles * kKeys);
  const int32_t* table =
      p.kv.block_tables + static_cast<int64_t>(p.token_slots[token]) * p.kv.max_blocks;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;

  const T* q =
      static_cast<const T*>(p.q) + (static_cast<int64_t>(token) * p.heads + first_head) * dim;
  for (int i = threadIdx.x * 8; i < kRows * dim; i += kThreads * 8) {
    const int row = i / dim, at = i % dim;
    Vec8<T> values{};
    if (first_head + row < p.heads) values = load8(q + row * dim + at);
    store8(queries + row * row_step + at, values);
  }
  __syncthreads();
  const int keys_at = warp % S::kKeyGroups * 16, half = warp / S::kKeyGroups;
  const int first_half = (dim / 16 + 1) / 2;
  const int first_step = half * first_half, steps = half == 0 ? first_half : dim / 16 - first_half;
  uint32_t query[S::kMostSteps][4];
#pragma unroll
  for (int i = 0; i < S::kMostSteps; ++i) {
    if (i < steps)
      ldmatrix4(query[i], queries + (lane % 16) * row_step + (first_step + i) * 16 + lane / 16 * 8);
  }
  // Of softmax, 2 kWarps neighbouring threads have a row, and four keys each.
  const int soft_row = threadIdx.x / (2 * kWarps), soft_at = threadIdx.x % (2 * kWarps) * 4;
  float largest = -INFINITY, sum = 0.f;
  float out[kTiles][4] = {};
  if constexpr (kAhead) {
    if (first_key < end_key) copy_keys(p.kv, table, first_key, end_key, keys, row_step);
    copy_commit();
  }
  T* const buffers = keys;
  for (int base = first_key, tile = 0; base < end_key; base += kKeys, ++tile) {
    __syncthreads();  // the tile before is done with
    if constexpr (kAhead) {
      keys = buffers + tile % 2 * kKeys * row_step;
      if (base + kKeys < end_key)
        copy_keys(p.kv, table, base + kKeys, end_key, buffers + (tile + 1) % 2 * kKeys * row_step,
                  row_step);
      copy_commit();
      copy_wait<1>();
    } else {
      for (int i = threadIdx.x * 8; i < kKeys * dim; i += kThreads * 8) {
        const int row = i / dim, at = i % dim, key = base + row;
        Vec8<T> values{};
        if (key < end_key) {
          const uint8_t* block =
              static_cast<const uint8_t*>(p.kv.k) + table[key / p.kv.block_size] * p.kv.block_bytes;
          values = load_key<T>(block, p.kv, key % p.kv.block_size, at);
        }
        store8(keys + row * row_step + at, values);
      }
    }
    __syncthreads();
    // Two sums a tile of 8 keys, so that no product waits for the one before it.
    float score[2][2][4] = {};
    const T* from =
        keys + (keys_at + lane / 16 * 8 + lane % 8) * row_step + first_step * 16 + lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < S::kMostSteps; ++i) {
      if (i >= steps) break;
      uint32_t b[4];
      ldmatrix4(b, from + i * 16);
      const uint32_t(&a)[4] = query[i];
      mma16816<T>(score[i % 2][0], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma16816<T>(score[i % 2][1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
    float* to = scores + (half * kRows + g) * kScoreRow + keys_at + 2 * t;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      to[n * 8] = score[0][n][0] + score[1][n][0];
      to[n * 8 + 1] = score[0][n][1] + score[1][n][1];
      to[8 * kScoreRow + n * 8] = score[0][n][2] + score[1][n][2];
      to[8 * kScoreRow + n * 8 + 1] = score[0][n][3] + score[1][n][3];
    }
    __syncthreads();
    float s[4], tile_largest = largest;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool live = base + soft_at + j < end_key;
      const float* at = scores + soft_row * kScoreRow + soft_at + j;
      s[j] = live ? (at[0] + at[kRows * kScoreRow]) * p.scale * kLog2e : -INFINITY;
      tile_largest = fmaxf(tile_largest, s[j]);
    }
#pragma unroll
    for (int apart = kWarps; apart > 0; apart /= 2)
      tile_largest = fmaxf(tile_largest, __shfl_xor_sync(kFullWarp, tile_largest, apart));
    // A tile has a live key, so its largest is finite.
    const float alpha = fast_exp2(largest - tile_largest);
    largest = tile_largest;
    float tile_sum = 0.f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      s[j] = fast_exp2(s[j] - largest);
      tile_sum += s[j];
    }
#pragma unroll
    for (int apart = kWarps; apart > 0; apart /= 2)
      tile_sum += __shfl_xor_sync(kFullWarp, tile_sum, apart);
    sum = sum * alpha + tile_sum;
    auto* p_row = reinterpret_cast<uint32_t*>(probabilities + soft_row * kProbabilityRow + soft_at);
    p_row[0] = pack2<T>(s[0], s[1]);
    p_row[1] = pack2<T>(s[2], s[3]);
    if (soft_at == 0) alphas[soft_row] = alpha;
    __syncthreads();
    if (warp >= kColumnWarps) continue;
    const float low = alphas[g], high = alphas[g + 8];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      out[n][0] *= low;
      out[n][1] *= low;
      out[n][2] *= high;
      out[n][3] *= high;
    }
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      uint32_t a[4];
      ldmatrix4(a, probabilities + (lane % 16) * kProbabilityRow + k + lane / 16 * 8);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        // Matrices of 8 keys by 8 columns: keys k, k + 8 of columns n, then of columns n + 1.
        uint32_t b[4];
        ldmatrix4_transposed(
            b, keys + (k + lane % 16) * row_step + warp * kWarpColumns + n * 8 + lane / 16 * 8);
        mma16816<T>(out[n], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma16816<T>(out[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }
  // By row, for the threads that hold columns of it.
  __syncthreads();
  if (soft_at == 0) {
    scores[soft_row] = largest;
    alphas[soft_row] = sum;
  }
  __syncthreads();
  if (warp >= kColumnWarps) return;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const int row = g + 8 * part;
    if (p.splits > 1) {
      const LatentPartial partial(p, token, first_head + row, kValueDim);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int column = warp * kWarpColumns + n * 8 + 2 * t;
        *reinterpret_cast<float2*>(partial.values + column) =
            make_float2(out[n][2 * part], out[n][2 * part + 1]);
      }
      if (warp == 0 && t == 0) {
        *partial.largest = scores[row];
        *partial.sum = alphas[row];
      }
    } else if (first_head + row < p.heads) {
      T* o = static_cast<T*>(p.out) +
             (static_cast<int64_t>(token) * p.heads + first_head + row) * kValueDim;
      const float inverse = 1.f / alphas[row];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int column = warp * kWarpColumns + n * 8 + 2 * t;
        *reinterpret_cast<uint32_t*>(o + column) =
            pack2<T>(out[n][2 * part] * inverse, out[n][2 * part + 1] * inverse);
      }
    }
  }
}

// Block (x = token and group of heads, y = row of the group): the parts of a row, added up. A lane
// asks for the largest and the sum of one part, all at once; only parts with keys are read.
template <typename T, int kValueDim>
__global__ void __launch_bounds__(kMergeThreads) merge_parts_kernel(const LatentAttentionParams p) {
  constexpr int64_t kPart = partial_floats(kValueDim);
  static_assert(kMostSplits <= kWarp, "a lane a part");
  let_next_start();
  wait_for_previous();
  const int groups = (p.heads + kRows - 1) / kRows;
  const int token = blockIdx.x / groups, row = blockIdx.y, lane = threadIdx.x % kWarp;
  const int head = blockIdx.x % groups * kRows + row;
  if (head >= p.heads) return;
  const bool live = p.positions[token] >= 0;
  const float* parts = p.partials + static_cast<int64_t>(blockIdx.x) * p.splits * kPart;
  const float* mine = parts + min(lane, p.splits - 1) * kPart + kRows * kValueDim + row;
  const float largest = lane < p.splits ? mine[0] : -INFINITY;
  const float part_sum = mine[kRows];
  if (!live) return;
  // 0 of a part without keys, whose largest is -inf.
  const float factor = fast_exp2(largest - warp_max(largest));
  const float sum = warp_sum(factor == 0.f ? 0.f : factor * part_sum);
  float out[(kValueDim + kMergeThreads - 1) / kMergeThreads] = {};
  for (unsigned left = __ballot_sync(kFullWarp, factor != 0.f); left != 0; left &= left - 1) {
    const int s = __ffs(static_cast<int>(left)) - 1;
    const float own = __shfl_sync(kFullWarp, factor, s);
    int i = 0;
    for (int column = threadIdx.x; column < kValueDim; column += kMergeThreads)
      out[i++] += own * parts[s * kPart + row * kValueDim + column];
  }
  T* o = static_cast<T*>(p.out) + (static_cast<int64_t>(token) * p.heads + head) * kValueDim;
  int i = 0;
  for (int column = threadIdx.x; column < kValueDim; column += kMergeThreads)
    o[column] = from_float<T>(out[i++] / sum);
}

template <int kWarps>
size_t shared_bytes(int head_dim, int tiles) {
  using S = Shape<kWarps>;
  return static_cast<size_t>((kRows + tiles * S::kKeys) * (head_dim + kPad) +
                             kRows * S::kProbabilityRow) *
             2 +
         static_cast<size_t>(2 * kRows * S::kScoreRow + kRows) * sizeof(float);
}

template <typename T, int kValueDim, int kWarps>
cudaError_t attend(const LatentAttentionParams& p, const Launch& launch) {
  const auto blocks = static_cast<unsigned>(p.tokens * ((p.heads + kRows - 1) / kRows));
  const bool ahead = p.kv.type == KvType::kActivation;  // 8-bit keys are widened on their way
  const auto kernel = ahead ? latent_attention_kernel<T, kValueDim, kWarps, true>
                            : latent_attention_kernel<T, kValueDim, kWarps, false>;
  return launch_kernel(kernel,
                       {.grid = dim3(blocks, static_cast<unsigned>(p.splits)),
                        .threads = Shape<kWarps>::kThreads,
                        .shared_bytes = shared_bytes<kWarps>(p.kv.head_dim, ahead ? 2 : 1)},
                       launch, p);
}

template <typename T, int kValueDim>
cudaError_t run(const LatentAttentionParams& p, const Launch& launch) {
  cudaError_t error;
  if (latent_attention_sm90_takes(p.kv, p.value_dim)) {
    constexpr Half kType = std::is_same_v<T, __half> ? Half::kF16 : Half::kBF16;
    error = latent_attention_sm90(kType, p, launch);
  } else {
    DeviceLimits limits;
    error = ask_limits(limits);
    if (error != cudaSuccess) return error;
    const bool wide = shared_bytes<8>(p.kv.head_dim, 2) <= static_cast<size_t>(limits.most_shared);
    error = wide ? attend<T, kValueDim, 8>(p, launch) : attend<T, kValueDim, 4>(p, launch);
  }
  if (error != cudaSuccess || p.splits == 1) return error;
  const auto blocks = static_cast<unsigned>(p.tokens * ((p.heads + kRows - 1) / kRows));
  return launch_kernel(merge_parts_kernel<T, kValueDim>,
                       {.grid = dim3(blocks, kRows), .threads = kMergeThreads}, launch, p);
}

template <typename T>
cudaError_t run(const LatentAttentionParams& p, const Launch& launch) {
  if (p.value_dim == 64) return run<T, 64>(p, launch);
  if (p.value_dim == 128) return run<T, 128>(p, launch);
  return p.value_dim == 256 ? run<T, 256>(p, launch) : run<T, 512>(p, launch);
}

}  // namespace

const char* latent_attention_refuses(int32_t head_dim, int32_t value_dim) {
  if (value_dim != 64 && value_dim != 128 && value_dim != 256 && value_dim != 512)
    return "kv_lora_rank is not 64, 128, 256 or 512";
  if (head_dim % 16 != 0 || head_dim > kMostHeadDim || head_dim <= value_dim)
    return "kv_lora_rank and qk_rope_head_dim together are not a multiple of 16 up to 640";
  return "";
}

int32_t latent_attention_splits(const LatentAttentionParams& p, int32_t max_context,
                                int32_t sm_count) {
  const bool sm90 = latent_attention_sm90_takes(p.kv, p.value_dim);
  const int32_t heads = sm90 ? latent_attention_sm90_heads(p.heads) : kRows;
  const int32_t blocks = std::max(1, p.tokens * ((p.heads + heads - 1) / heads));
  const int32_t most =
      std::clamp(std::min(2 * sm_count / blocks, max_context / kLeastKeys), 1, kMostSplits);
  if (!sm90) return most;
  // A multiprocessor has one block at a time: as few turns of all of them as there can be, counted
  // in the time that whole keys take.
  int32_t best = 1;
  float least = INFINITY;
  for (int32_t splits = 1; splits <= most; ++splits) {
    const int32_t turns = (blocks * splits + sm_count - 1) / sm_count;
    const float time = static_cast<float>(turns) * (1.f / static_cast<float>(splits) + kTurnCost);
    if (time < least) {
      least = time;
      best = splits;
    }
  }
  return best;
}

// Blocks times parts are never more than twice the multiprocessors, where there are parts.
size_t latent_attention_partial_bytes(int32_t value_dim, int32_t heads, int32_t sm_count) {
  const int32_t groups = latent_attention_sm90_heads(heads) / kRows;
  return static_cast<size_t>(2 * sm_count * groups) *
         static_cast<size_t>(partial_floats(value_dim)) * sizeof(float);
}

cudaError_t latent_attention(Half type, const LatentAttentionParams& p, const Launch& launch) {
  if (latent_attention_refuses(p.kv.head_dim, p.value_dim)[0] != '\0' || p.kv.kv_heads != 1 ||
      p.heads <= 0 || p.tokens < 0 || p.splits < 1 || p.kv.block_size <= 0) {
    return cudaErrorInvalidValue;
  }
  if (p.tokens == 0) return cudaSuccess;
  return type == Half::kBF16 ? run<__nv_bfloat16>(p, launch) : run<__half>(p, launch);
}

}  // namespace inferd::cuda
