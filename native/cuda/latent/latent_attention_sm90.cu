// 1. Latent attention as in latent_attention.cu, for Hopper: with wgmma, the tensor copy engine and
//    a warp that only copies.
// 2. As there, 16-bit keys of 576 values of which the first 512 are the value (DeepSeek V2 and V3).
// 3. Block (x = token and group of 16, 32 or 64 heads, y = part of the keys): two warpgroups that
//    multiply and a warp that copies keys in tiles of 64. Products are turned round, so that heads,
//    of which there may be few, are columns, and keys and values are rows of 64:
//
//      scores^T [64 keys][heads]     warpgroup w: its half of the heads, over all 576 values
//      output^T [512][heads]         warpgroup w: 256 of the values' columns, all heads
//
//    Probabilities and factors go from one to the other in shared memory.
// 4. Two tiles of 72 KB, queries 1152 bytes a head, probabilities 128 bytes a head: 226 KB of 64
//    heads. A tile is [8 groups][9 panels][8 keys][128 bytes], 128-byte swizzle, so that one copy
//    moves all keys that a cache block has of it; a panel's atoms are read with keys as rows for
//    scores, and with columns as rows for the output. Of 64 heads a thread holds 128 sums of the
//    output and 16 scores, for which the copying warp's group gives up registers.
// 5. As there. Rows of a tile that hold no key of the part become zeros before they are values, as
//    0 * inf is not 0.
// 6. Compute capability 9.0, block sizes that are multiples of 8, parts as in latent_attention.h.
// 7. One H100 (read 3.12 TB/s in the same run; `latent_attention_test bench`): 16 heads over 64
//    sequences of 8192 keys 215 us, 90 % of read, of 1024 keys 37 us; 128 heads 322 us, 454
//    TFLOP/s, and 54 us. Keys are read once a group of heads, 1152 bytes each; of 64 heads a tile
//    is 8.9 MFLOP, for whose operands shared memory takes as long as the products.
// 8. FlashMLA (DeepSeek 2025) for absorbed decode by wgmma with columns shared out over two
//    warpgroups.
// 9. Heads as rows would multiply 64 where a model has 16. Scores of the next tile ahead of the
//    output of this one would keep both tiles while no third is on its way.
#include <math_constants.h>

#include "cuda/device/hopper.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/tensor_map.h"
#include "cuda/latent/latent_attention_sm90.h"
#include "cuda/latent/latent_parts.cuh"

namespace inferd::cuda {
namespace {

constexpr int kHeadDim = 576, kValueDim = 512, kKeys = 64, kStages = 2;
constexpr int kPanelColumns = 64, kPanels = kHeadDim / kPanelColumns, kAtomBytes = 1024;
constexpr int kGroupBytes = kPanels * kAtomBytes;  // of 8 keys
constexpr int kTileBytes = kKeys / 8 * kGroupBytes;
constexpr int kConsumers = 256, kThreads = kConsumers + 128;

template <int kHeads>
struct alignas(1024) LatentShared {
  uint8_t keys[kStages][kTileBytes];
  uint8_t queries[kPanels][kHeads][128];
  uint8_t probabilities[kHeads][128];  // of 64 keys
  float factors[kHeads];               // of the sums so far
  float warps[2][4][kHeads / 2];       // what the warps of a warpgroup found of each head
  uint64_t full[kStages], free[kStages];
};

// The keys of a part: [first, end) of the tiles from `tile` on, of which there are `tiles`.
struct Part {
  int first, end, tile, tiles;

  __device__ Part(const LatentAttentionParams& p, int position) {
    const int oldest = p.window > 0 ? max(0, position - p.window + 1) : 0;
    const int first_tile = oldest / kKeys, all = position / kKeys + 1 - first_tile;
    const int most = (all + p.splits - 1) / p.splits;
    const int behind = static_cast<int>(blockIdx.y) * most;
    tile = first_tile + behind;
    tiles = max(0, min(most, all - behind));
    first = max(oldest, tile * kKeys);
    end = min(position + 1, (tile + tiles) * kKeys);
  }
};

#ifdef INFERD_HOPPER

constexpr int kOutTiles = kValueDim / 2 / 64;  // of a warpgroup
constexpr float kLog2e = 1.4426950408889634f;
// Ids of group barriers: all consumers; and those of warpgroup w.
constexpr int kBothGroups = 1, kOneGroup = 2;

// One warp: lane l copies the keys that the l-th piece of a tile has, one cache block's.
template <int kHeads>
__device__ void copy_tiles(const LatentAttentionParams& p, LatentShared<kHeads>& s,
                           const CUtensorMap* map, int box_keys, const Part& part, int slot) {
  const int lane = threadIdx.x % kWarp, lane_key = lane * box_keys;
  const int32_t* table = p.kv.block_tables + static_cast<int64_t>(slot) * p.kv.max_blocks;
  const int size = p.kv.block_size, box_bytes = box_keys * kHeadDim * 2;
  for (int i = 0; i < part.tiles; ++i) {
    const int stage = i % kStages, key = (part.tile + i) * kKeys + lane_key;
    const bool wanted = lane_key < kKeys && key < part.end && key + box_keys > part.first;
    int row = 0;
    if (wanted) row = __ldcg(table + key / size) * size + key % size;
    const uint32_t bytes = __popc(__ballot_sync(kFullWarp, wanted)) * box_bytes;
    barrier_wait(&s.free[stage], (i / kStages & 1) ^ 1);
    if (lane == 0) barrier_expect(&s.full[stage], bytes);
    __syncwarp();
    if (wanted)
      tensor_copy_4d(s.keys[stage] + lane * box_bytes, map, &s.full[stage], 0, 0, 0, row / 8);
  }
}

template <typename T, int kHeads>
struct Consumer {
  // Of a thread: columns of scores, which are heads 8 n + 2 t + e of its half for c = 2 n + e, and
  // sums of one tile of 64 of the output's rows.
  static constexpr int kHalf = kHeads / 2, kColumns = kHalf / 4, kOut = kHeads / 2;
  const LatentAttentionParams& p;
  LatentShared<kHeads>& s;
  const Part& part;
  const int group, warp, g, t;  // which warpgroup; warp of it; lane = 4 g + t
  float scores[kHalf / 2], out[kOutTiles][kOut];
  float top[kColumns], total[kColumns], factor[kColumns];

  __device__ Consumer(const LatentAttentionParams& params, LatentShared<kHeads>& shared,
                      const Part& keys)
      : p(params),
        s(shared),
        part(keys),
        group(__shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 128, 0)),
        warp(threadIdx.x / kWarp % 4),
        g(threadIdx.x % kWarp / 4),
        t(threadIdx.x % 4) {}

  __device__ void load_queries(int token, int first_head) {
    const T* q = static_cast<const T*>(p.q) +
                 (static_cast<int64_t>(token) * p.heads + first_head) * kHeadDim;
    for (int i = threadIdx.x; i < kHeads * (kHeadDim / 8); i += kConsumers) {
      const int head = i / (kHeadDim / 8), piece = i % (kHeadDim / 8);
      Vec8<T> values{};
      if (first_head + head < p.heads) values = load8(q + head * kHeadDim + piece * 8);
      uint8_t* row = s.queries[piece / 8][head];
      store8(reinterpret_cast<T*>(row + ((piece % 8) ^ (head % 8)) * 16), values);
    }
    async_proxy_fence();
    group_sync<kConsumers>(kBothGroups);
  }

  __device__ void start_scores(int stage) {
    const MatrixDescriptor<kGroupBytes> a(s.keys[stage]);
    const MatrixDescriptor<kAtomBytes> b(s.queries[0][group * kHalf]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      const uint32_t panel = step / 4, bytes = step % 4 * 32;
      wgmma_few<T, false>(scores, a.at(panel * kAtomBytes + bytes),
                          b.at(panel * kHeads * 128 + bytes), step != 0);
    }
    wgmma_commit();
  }

  __device__ void start_output(int stage) {
    const MatrixDescriptor<kAtomBytes> b(s.probabilities);
    wgmma_fence();
#pragma unroll
    for (int m = 0; m < kOutTiles; ++m) {
      const MatrixDescriptor<kGroupBytes> a(s.keys[stage] + (group * kOutTiles + m) * kAtomBytes,
                                            kAtomBytes);
#pragma unroll
      for (int step = 0; step < kKeys / 16; ++step)
        wgmma_few<T, true>(out[m], a.at(step * 2 * kGroupBytes), b.at(step * 32), 1);
    }
    wgmma_commit();
  }

  __device__ void hold_scores() {
#pragma unroll
    for (float& x : scores) asm volatile("" : "+f"(x)::"memory");
  }
  __device__ void hold_output() {
#pragma unroll
    for (auto& tile : out) {
#pragma unroll
      for (float& x : tile) asm volatile("" : "+f"(x)::"memory");
    }
  }

  __device__ float& score(int column, int h) { return scores[column / 2 * 4 + h * 2 + column % 2]; }

  // Scores of a tile become probabilities, and `factor` what earlier sums are worth beside them.
  __device__ void softmax(int tile) {
    const int key0 = tile * kKeys + warp * 16 + g;
    const float scale = p.scale * kLog2e;
    float best[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int key = key0 + 8 * h;
        score(c, h) = key >= part.first && key < part.end ? score(c, h) * scale : -CUDART_INF_F;
      }
      best[c] = fmaxf(score(c, 0), score(c, 1));
#pragma unroll
      for (int apart = 4; apart < kWarp; apart *= 2)
        best[c] = fmaxf(best[c], __shfl_xor_sync(kFullWarp, best[c], apart));
    }
    if (g == 0) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) s.warps[group][warp][head_of(c)] = best[c];
    }
    group_sync<128>(kOneGroup + group);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float now = top[c];
#pragma unroll
      for (int w = 0; w < 4; ++w) now = fmaxf(now, s.warps[group][w][head_of(c)]);
      // A tile has a key of the part, so this is finite.
      factor[c] = fast_exp2(top[c] - now);
      top[c] = now;
#pragma unroll
      for (int h = 0; h < 2; ++h) score(c, h) = fast_exp2(score(c, h) - now);
      total[c] = total[c] * factor[c] + score(c, 0) + score(c, 1);
    }
  }
  // Of its half of the heads.
  __device__ int head_of(int column) const { return column / 2 * 8 + t * 2 + column % 2; }

  // What both warpgroups multiply: probabilities with keys contiguous, and the factors; the rows of
  // a tile that are no keys of the part are cleared.
  __device__ void share(int tile, int stage) {
    const int lane = g * 4 + t, row = lane % 8, piece = warp * 2 + lane / 8 % 2;
#pragma unroll
    for (int n = 0; n < kHalf / 8; ++n) {
      const float* x = scores + n * 4;
      store_transposed2(s.probabilities[group * kHalf + n * 8 + row] + (piece ^ row) * 16,
                        pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]));
    }
    if (warp == 0 && g == 0) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) s.factors[group * kHalf + head_of(c)] = factor[c];
    }
    const int begin = part.first - tile * kKeys, end = part.end - tile * kKeys;
    if (begin > 0 || end < kKeys) {
      for (int i = threadIdx.x; i < kKeys * (kValueDim / 8); i += kConsumers) {
        const int key = i / (kValueDim / 8), at = i % (kValueDim / 8);
        if (key >= begin && key < end) continue;
        uint8_t* panel = s.keys[stage] + key / 8 * kGroupBytes + at / 8 * kAtomBytes;
        *reinterpret_cast<uint4*>(panel + key % 8 * 128 + at % 8 * 16) = {0, 0, 0, 0};
      }
    }
    async_proxy_fence();
  }

  __device__ void rescale() {
#pragma unroll
    for (int n = 0; n < kHeads / 8; ++n) {
      const float2 by = *reinterpret_cast<const float2*>(s.factors + n * 8 + t * 2);
#pragma unroll
      for (int m = 0; m < kOutTiles; ++m) {
        out[m][n * 4] *= by.x;
        out[m][n * 4 + 1] *= by.y;
        out[m][n * 4 + 2] *= by.x;
        out[m][n * 4 + 3] *= by.y;
      }
    }
  }

  // Sums of all warps' keys, and the largest scores, where all find them: in warps[.][0] and
  // factors.
  __device__ void share_totals() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int apart = 4; apart < kWarp; apart *= 2)
        total[c] += __shfl_xor_sync(kFullWarp, total[c], apart);
    }
    group_sync<kConsumers>(kBothGroups);  // the last tile's are read
    if (g == 0) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        s.warps[group][warp][head_of(c)] = total[c];
        if (warp == 0) s.factors[group * kHalf + head_of(c)] = top[c];
      }
    }
    group_sync<kConsumers>(kBothGroups);
  }
  __device__ float total_of(int head) const {
    const auto& of = s.warps[head / kHalf];
    const int at = head % kHalf;
    return of[0][at] + of[1][at] + of[2][at] + of[3][at];
  }

  __device__ void store(int token, int first_head) {
    share_totals();
    const int row0 = group * (kValueDim / 2) + warp * 16 + g;
#pragma unroll
    for (int n = 0; n < kHeads / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = n * 8 + t * 2 + e, head = first_head + at;
        if (head >= p.heads) continue;
        if (p.splits > 1) {
          LatentPartial to(p, token, head, kValueDim);
          if (group == 0 && warp == 0 && g == 0) {
            *to.largest = s.factors[at];
            *to.sum = total_of(at);
          }
#pragma unroll
          for (int m = 0; m < kOutTiles; ++m) {
            to.values[row0 + m * 64] = out[m][n * 4 + e];
            to.values[row0 + m * 64 + 8] = out[m][n * 4 + 2 + e];
          }
        } else {
          T* to = static_cast<T*>(p.out) +
                  (static_cast<int64_t>(token) * p.heads + head) * kValueDim + row0;
          const float inverse = 1.f / total_of(at);
#pragma unroll
          for (int m = 0; m < kOutTiles; ++m) {
            to[m * 64] = from_float<T>(out[m][n * 4 + e] * inverse);
            to[m * 64 + 8] = from_float<T>(out[m][n * 4 + 2 + e] * inverse);
          }
        }
      }
    }
  }

  __device__ void run(int token, int first_head) {
    load_queries(token, first_head);
#pragma unroll
    for (auto& tile : out) {
#pragma unroll
      for (float& x : tile) x = 0.f;
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      top[c] = -CUDART_INF_F;
      total[c] = 0.f;
    }
    for (int i = 0; i < part.tiles; ++i) {
      const int stage = i % kStages;
      barrier_wait(&s.full[stage], i / kStages & 1);
      start_scores(stage);
      wgmma_wait<0>();
      hold_scores();
      softmax(part.tile + i);
      // The other warpgroup has read what was shared of the tile before.
      group_sync<kConsumers>(kBothGroups);
      share(part.tile + i, stage);
      group_sync<kConsumers>(kBothGroups);
      rescale();
      start_output(stage);
      wgmma_wait<0>();
      hold_output();
      if (threadIdx.x % 128 == 0) barrier_arrive(&s.free[stage]);
    }
    store(token, first_head);
  }
};

#endif  // INFERD_HOPPER

template <typename T, int kHeads>
__global__ void __launch_bounds__(kThreads, 1)
    latent_attention_sm90_kernel(const __grid_constant__ LatentAttentionParams p,
                                 const __grid_constant__ CUtensorMap map, const int box_keys) {
#ifdef INFERD_HOPPER
  extern __shared__ uint8_t raw[];
  // The launcher adds what the alignment may take.
  LatentShared<kHeads>& s =
      *reinterpret_cast<LatentShared<kHeads>*>(raw + (0u - shared_address(raw)) % kAtomBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.free[i], 2);
    }
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  const int groups = (p.heads + kHeads - 1) / kHeads;
  const int token = blockIdx.x / groups, first_head = blockIdx.x % groups * kHeads;
  const int position = p.positions[token];
  if (position < 0) return;
  const Part part(p, position);
  if (threadIdx.x >= kConsumers) {
    give_registers<24>();
    if (threadIdx.x < kConsumers + kWarp)
      copy_tiles<kHeads>(p, s, &map, box_keys, part, p.token_slots[token]);
  } else {
    take_registers<240>();
    Consumer<T, kHeads>(p, s, part).run(token, first_head);
  }
#endif
}

template <typename T, int kHeads>
cudaError_t attend(const LatentAttentionParams& p, const CUtensorMap& map, int box_keys,
                   const Launch& launch) {
  const auto blocks = static_cast<unsigned>(p.tokens * ((p.heads + kHeads - 1) / kHeads));
  return launch_kernel(latent_attention_sm90_kernel<T, kHeads>,
                       {.grid = dim3(blocks, static_cast<unsigned>(p.splits)),
                        .threads = kThreads,
                        .shared_bytes = sizeof(LatentShared<kHeads>) + kAtomBytes},
                       launch, p, map, box_keys);
}

template <typename T>
cudaError_t attend(const LatentAttentionParams& p, const CUtensorMap& map, int box_keys,
                   const Launch& launch) {
  switch (latent_attention_sm90_heads(p.heads)) {
    case 16:
      return attend<T, 16>(p, map, box_keys, launch);
    case 32:
      return attend<T, 32>(p, map, box_keys, launch);
    default:
      return attend<T, 64>(p, map, box_keys, launch);
  }
}

}  // namespace

bool latent_attention_sm90_takes(const PagedKv& kv, int32_t value_dim) {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
    return false;
  return major == 9 && minor == 0 && kv.type == KvType::kActivation && kv.head_dim == kHeadDim &&
         value_dim == kValueDim && kv.block_size % 8 == 0 &&
         kv.block_bytes == int64_t{kv.block_size} * kHeadDim * 2;
}

int32_t latent_attention_sm90_heads(int32_t heads) {
  if (heads <= 16) return 16;
  return heads <= 32 ? 32 : 64;
}

cudaError_t latent_attention_sm90(Half type, const LatentAttentionParams& p, const Launch& launch) {
  const PagedKv& kv = p.kv;
  const uint32_t lowest_bit = static_cast<uint32_t>(kv.block_size & -kv.block_size);
  const uint32_t box_keys = lowest_bit < kKeys ? lowest_bit : kKeys;
  // One copy takes [box_keys / 8 groups][panels][8 keys][64 values].
  const TensorView view = {
      .base = kv.k,
      .rank = 4,
      .dims = {kPanelColumns, 8, kPanels,
               static_cast<uint64_t>(kv.num_blocks) * static_cast<uint64_t>(kv.block_size / 8)},
      .stride_bytes = {kHeadDim * 2, kPanelColumns * 2, kHeadDim * 2 * 8},
      .box = {kPanelColumns, 8, kPanels, box_keys / 8}};
  CUtensorMap map;
  const cudaError_t error = encode_tensor_map(type, view, map);
  if (error != cudaSuccess) return error;
  const auto box = static_cast<int>(box_keys);
  return type == Half::kBF16 ? attend<__nv_bfloat16>(p, map, box, launch)
                             : attend<__half>(p, map, box, launch);
}

}  // namespace inferd::cuda
