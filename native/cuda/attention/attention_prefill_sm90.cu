// 1. out[token, head] = softmax(scale * q . K^T) V, causal, over the paged cache, for Hopper: as
//    attention_prefill.cu, with wgmma, the tensor copy engine and warps of different roles.
// 2. q [tokens, .. heads * head_dim] and out f16/bf16, caches [blocks, kv_heads, block_size,
//    head_dim] of the same type; tiles and the rest as in attention_prefill.h.
// 3. One block an SM, which takes (tile, kv head) items from a counter, longest first. A tile's
//    128 rows are its tokens times the heads of the kv head (row = token * group + head).
//
//      warpgroup 0   q, then k and v tiles of 128 keys, from the diagonal back; 24 registers
//      warpgroup 1   rows 0 .. 63: scores of tile i+1 under the output of tile i and its softmax
//      warpgroup 2   rows 64 .. 127, the same; both share the keys
//
// 4. 192 KB: two q tiles, two stages of k and of v (head_dim 128). 240 registers a consumer
//    thread. A key tile in shared memory is [16 groups][head_dim / 64][8 tokens][128 bytes],
//    128-byte swizzle, so that one copy moves a whole run of 16 to 128 tokens of a block.
// 5. f32 scores and sums; probabilities rounded to 16 bits. Relative error against float64: bf16
//    2.1e-3, f16 2.4e-4. The same bits run to run: who takes an item does not matter to it.
// 6. Compute capability 9.0; head_dim 64 or 128; 16-bit caches; block sizes that are multiples
//    of 16; 1 to 16 heads a kv head. Else cudaErrorInvalidValue.
// 7. 4 * head_dim * heads flops a (query, key) pair. H200, 32/8 heads of 128, bf16, causal,
//    TFLOP/s: 128x128 141, 16x1024 432, 4x4096 623, 1x16384 700, 1x65536 617, 2048 after 32768
//    691; f16 676, head_dim 64 430, window of 4096 674 (at 16384). Long prompts: wgmma and the
//    bandwidth of L2 (5.5 TB/s of k and v); 128x128: L2, 89 % busy, device memory 70 %.
// 8. FlashAttention-3 (Shah et al. 2024); packed heads as in its pack_gqa.
// 9. Tried, H200, TFLOP/s at 128x128 / 16x1024 / 1x16384 / 1x65536:
//      a block a (tile, head), heads not packed, one q buffer     82 / 343 / 625 / 580
//      persistent, packed, items in a fixed order                137 / 395 / 581 / 497
//      items from a counter                                      137 / 395 / 574 / 484
//      softmax pinned before the wait for the output, behind
//      which the compiler had moved it                           136 / 410 / 583 / 538
//      half as many copies (4-d boxes), their inputs prefetched  141 / 432 / 700 / 617
//      next item's first scores under the stores: left out       141 / 424 / 699 / 615
//    Longer, H100, 1x65536: a test for sinks and scales where a tile ends 1 to 2 %, the number of
//    items in a register of the warp that copies 5 %: hence PrefillKind.
#include <math_constants.h>

#include "cuda/attention/attention_prefill_copies.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/tensor_map.h"

namespace inferd::cuda {
namespace {

#ifdef INFERD_HOPPER

template <typename T, int kHeadDim, PrefillKind kKind>
struct Consumer {
  static constexpr int kPanels = PrefillShared<kHeadDim>::kPanels, kOut = kHeadDim / 2;
  static constexpr int kGroupBytes = kPanels * kAtomBytes;  // 8 tokens
  const PrefillArgs& p;
  PrefillShared<kHeadDim>& s;
  const int group_of_two, thread, t;  // which consumer; thread of it; lane % 4
  int32_t token[2], head[2];          // of this thread's rows g and g + 8
  int32_t first_token, last_token;    // of the warpgroup's rows
  float o[kOut], scores[64];
  uint32_t probs[32];
  float top[2], total[2], keep[2];

  __device__ Consumer(const PrefillArgs& args, PrefillShared<kHeadDim>& shared)
      : p(args),
        s(shared),
        group_of_two(__shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 128 - 1, 0)),
        thread(threadIdx.x % 128),
        t(threadIdx.x % 4) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = group_of_two * 64 + thread / kWarp * 16 + thread % kWarp / 4 + h * 8;
      token[h] = row / p.group;
      head[h] = row % p.group;
    }
    first_token = group_of_two * 64 / p.group;
    last_token = (group_of_two * 64 + 63) / p.group;
  }

  __device__ void start_scores(int q, int stage) {
    const MatrixDescriptor<kAtomBytes> a(s.q[q] + group_of_two * 64 * 128);
    const MatrixDescriptor<kGroupBytes> b(s.k[stage]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      const uint32_t panel = step / 4, bytes = step % 4 * 32;
      wgmma_shared<T>(scores, a.at(panel * kRows * 128 + bytes), b.at(panel * kAtomBytes + bytes),
                      step != 0);
    }
    wgmma_commit();
  }

  __device__ void start_output(int stage) {
    const MatrixDescriptor<kGroupBytes> b(s.v[stage], kAtomBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      wgmma_registers<T>(o, &probs[step * 4], b.at(step * 2 * kGroupBytes));
    }
    wgmma_commit();
  }

  // The scores are there; with kPending = 1 an output may still be under way.
  template <int kPending>
  __device__ void wait_scores() {
    wgmma_wait<kPending>();
    hold(scores);
  }
  __device__ void wait_output() {
    wgmma_wait<0>();
    hold(o);
  }

  // Rows of a value tile that no copy filled, or that hold tokens outside the sequence, become
  // zero: what an earlier tile or owner left there could be infinite, and 0 * inf is not 0.
  __device__ void clear_values(int stage, int32_t turn, const KeySpan& span) {
    const int32_t begin = span.first - turn * kKeys, end = span.end - turn * kKeys;
    if (begin <= 0 && end >= kKeys) return;
    if (thread < begin || thread >= end) {
      uint8_t* row = s.v[stage] + thread / 8 * kGroupBytes + thread % 8 * 128;
#pragma unroll
      for (int i = 0; i < kPanels * 8; ++i) {
        const int piece = (i + thread) % 8;  // spread over the banks
        *reinterpret_cast<uint4*>(row + i / 8 * kAtomBytes + piece * 16) = {0, 0, 0, 0};
      }
    }
    async_proxy_fence();
    group_sync<128>(values_barrier(group_of_two));
  }

  __device__ void softmax(const PrefillTile& tile, int32_t turn) {
    const int32_t key0 = turn * kKeys;
    if (kKind == PrefillKind::kCapped ||
        (kKind == PrefillKind::kBounded && p.scale.cap_log2 != 0.f)) {
#pragma unroll
      for (int i = 0; i < 64; ++i) scores[i] = capped_score(scores[i], p.scale.cap_log2);
    }
    if (key0 + kKeys - 1 > tile.first_position + first_token ||
        (p.window > 0 && key0 <= tile.first_position + last_token - p.window)) {
#pragma unroll
      for (int i = 0; i < 64; ++i) {
        const int32_t key = key0 + i / 4 * 8 + t * 2 + i % 2;
        const int32_t query = tile.first_position + token[i / 2 % 2];
        if (key > query || (p.window > 0 && key <= query - p.window)) scores[i] = -CUDART_INF_F;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float best = top[h];
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        best = fmaxf(best, fmaxf(scores[n * 4 + h * 2], scores[n * 4 + h * 2 + 1]));
      }
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 1));
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 2));
      const float base = best == -CUDART_INF_F ? 0.f : best * p.scale.log2;  // no key seen so far
      keep[h] = fast_exp2(top[h] * p.scale.log2 - base);
      top[h] = best;
      float sum = 0.f;
#pragma unroll
      for (int n = 0; n < 16; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = scores[n * 4 + h * 2 + e];
          x = fast_exp2(fmaf(x, p.scale.log2, -base));
          sum += x;
        }
      }
      total[h] = total[h] * keep[h] + sum;
    }
  }

  __device__ void pack_probs() {
#pragma unroll
    for (int i = 0; i < 32; ++i) probs[i] = pack2<T>(scores[i * 2], scores[i * 2 + 1]);
  }
  __device__ void rescale() {
#pragma unroll
    for (int i = 0; i < kOut; ++i) o[i] *= keep[i / 2 % 2];
  }

  __device__ void store(const PrefillTile& tile, int32_t kv_head) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = total[h];
      sum += __shfl_xor_sync(kFullWarp, sum, 1);
      sum += __shfl_xor_sync(kFullWarp, sum, 2);
      if constexpr (kKind != PrefillKind::kPlain)
        sum = sunk_total(sum, top[h], p.scale, p.sinks, kv_head * p.group + head[h]);
      const float factor = 1.f / sum;
      T* out = static_cast<T*>(p.out) + (tile.first_token + token[h]) * p.out_stride +
               (kv_head * p.group + head[h]) * kHeadDim;
      const bool wanted = token[h] < tile.count;
#pragma unroll
      for (int c = 0; c < kHeadDim / 32; ++c) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (c * 4 + i) * 4 + h * 2;
          w[i] = pack2<T>(o[at] * factor, o[at + 1] * factor);
        }
        transpose_quad(w, t);
        if (wanted) *reinterpret_cast<uint4*>(out + c * 32 + t * 8) = {w[0], w[1], w[2], w[3]};
      }
    }
  }

  __device__ void run() {
    int32_t at = 0;  // key tiles so far
    for (int32_t n = 0;; ++n) {
      const int q = n & 1;
      group_sync<kItemThreads>(item_there(q, group_of_two));
      const int32_t item = s.item[q];
      if (item < 0) break;
      const PrefillTile tile = s.tile[q];
      const KeySpan span(tile, p.window);
      const int32_t last_at = at + span.turn_end - 1 - span.turn_begin;
      int32_t turn = span.turn_end - 1;
#pragma unroll
      for (int i = 0; i < kOut; ++i) o[i] = 0.f;
      top[0] = top[1] = -CUDART_INF_F;
      total[0] = total[1] = 0.f;
      barrier_wait(&s.q_full[q], n >> 1 & 1);
      barrier_wait(&s.k_full[at % kStages], at / kStages & 1);
      start_scores(q, at % kStages);
      wait_scores<0>();
      if (thread == 0) barrier_arrive(&s.k_free[at % kStages]);
      softmax(tile, turn);
      pack_probs();
      for (; at < last_at; ++at) {  // the scores of the next tile under the output of this one
        const int next = (at + 1) % kStages, stage = at % kStages;
        barrier_wait(&s.k_full[next], (at + 1) / kStages & 1);
        start_scores(q, next);
        barrier_wait(&s.v_full[stage], at / kStages & 1);
        clear_values(stage, turn, span);
        rescale();
        start_output(stage);
        wait_scores<1>();
        if (thread == 0) barrier_arrive(&s.k_free[next]);
        softmax(tile, --turn);
        hold(scores);  // the softmax comes before the wait that it hides
        wait_output();
        if (thread == 0) barrier_arrive(&s.v_free[stage]);
        pack_probs();
      }
      group_arrive<kItemThreads>(item_done(q, group_of_two));
      const int stage = at % kStages;
      barrier_wait(&s.v_full[stage], at / kStages & 1);
      clear_values(stage, turn, span);
      rescale();
      start_output(stage);
      wait_output();
      if (thread == 0) barrier_arrive(&s.v_free[stage]);
      ++at;
      store(tile, item % p.kv_heads);
    }
  }
};

#endif  // INFERD_HOPPER

template <typename T, int kHeadDim, PrefillKind kKind>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    prefill_attention_sm90_kernel(const __grid_constant__ PrefillArgs p,
                                  const __grid_constant__ CUtensorMap q_map,
                                  const __grid_constant__ CUtensorMap k_map,
                                  const __grid_constant__ CUtensorMap v_map) {
#ifdef INFERD_HOPPER
  extern __shared__ uint8_t raw[];
  // The launcher adds 1 KB for the alignment.
  PrefillShared<kHeadDim>& s =
      *reinterpret_cast<PrefillShared<kHeadDim>*>(raw + (0u - shared_address(raw)) % kAtomBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      barrier_init(&s.q_full[i], 1);
    }
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&s.k_full[i], 1);
      barrier_init(&s.v_full[i], 1);
      barrier_init(&s.k_free[i], 2);
      barrier_init(&s.v_free[i], 2);
    }
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x < kWarp)
      produce<kHeadDim, kKind == PrefillKind::kBounded>(p, s, &q_map, &k_map, &v_map);
  } else {
    take_registers<240>();
    Consumer<T, kHeadDim, kKind>(p, s).run();
  }
#endif
}

PrefillKind kind_of(const PrefillArgs& args) {
  if (args.tile_count != nullptr) return PrefillKind::kBounded;
  if (args.scale.cap_log2 != 0.f) return PrefillKind::kCapped;
  return args.sinks != nullptr || args.scale.per_value != 1.f ? PrefillKind::kSunk
                                                              : PrefillKind::kPlain;
}

template <typename T, int kHeadDim>
cudaError_t launch_shape(const PrefillArgs& args, int32_t blocks, const CUtensorMap& q_map,
                         const KvTensorMaps& maps, const Launch& launch) {
  constexpr size_t kBytes = sizeof(PrefillShared<kHeadDim>) + 1024;
  const auto run = [&](auto kernel) {
    return launch_kernel(kernel, {dim3(blocks), kPrefillThreads, kBytes}, launch, args, q_map,
                         maps.k, maps.v);
  };
  switch (kind_of(args)) {
    case PrefillKind::kPlain:
      return run(prefill_attention_sm90_kernel<T, kHeadDim, PrefillKind::kPlain>);
    case PrefillKind::kSunk:
      return run(prefill_attention_sm90_kernel<T, kHeadDim, PrefillKind::kSunk>);
    case PrefillKind::kCapped:
      return run(prefill_attention_sm90_kernel<T, kHeadDim, PrefillKind::kCapped>);
    case PrefillKind::kBounded:
      return run(prefill_attention_sm90_kernel<T, kHeadDim, PrefillKind::kBounded>);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t choose_head_dim(int32_t head_dim, const PrefillArgs& args, int32_t blocks,
                            const CUtensorMap& q_map, const KvTensorMaps& maps,
                            const Launch& launch) {
  return head_dim == 128 ? launch_shape<T, 128>(args, blocks, q_map, maps, launch)
                         : launch_shape<T, 64>(args, blocks, q_map, maps, launch);
}

}  // namespace

bool prefill_attention_sm90_takes(int32_t major, int32_t minor, const PagedKv& kv) {
  return major == 9 && minor == 0 && kv.type == KvType::kActivation &&
         (kv.head_dim == 64 || kv.head_dim == 128) && kv.block_size > 0 && kv.block_size % 16 == 0;
}

cudaError_t encode_kv_maps(Half type, const PagedKv& kv, KvTensorMaps& maps) {
  if (!prefill_attention_sm90_takes(9, 0, kv)) return cudaErrorInvalidValue;
  const uint32_t lowest_bit = static_cast<uint32_t>(kv.block_size & -kv.block_size);
  const uint32_t box = lowest_bit < kKeys ? lowest_bit : kKeys;
  const uint64_t head_dim = kv.head_dim;
  // One copy takes [box / 8 groups][panels][8 tokens][64 dims].
  TensorView view = {
      .base = kv.k,
      .rank = 4,
      .dims = {kPanelColumns, 8, head_dim / kPanelColumns,
               static_cast<uint64_t>(kv.num_blocks) * kv.kv_heads * (kv.block_size / 8)},
      .stride_bytes = {head_dim * 2, kPanelColumns * 2, head_dim * 2 * 8},
      .box = {kPanelColumns, 8, static_cast<uint32_t>(head_dim / kPanelColumns), box / 8}};
  maps.box_tokens = static_cast<int32_t>(box);
  const cudaError_t status = encode_tensor_map(type, view, maps.k);
  if (status != cudaSuccess) return status;
  view.base = kv.v;
  return encode_tensor_map(type, view, maps.v);
}

cudaError_t prefill_attention_sm90(Half type, const PrefillAttentionParams& params,
                                   const KvTensorMaps& maps, const Launch& launch) {
  const PagedKv& kv = params.kv;
  if (!prefill_attention_sm90_takes(9, 0, kv) || params.num_tiles < 0 || kv.kv_heads <= 0 ||
      params.heads <= 0 || params.heads % kv.kv_heads != 0 || params.heads / kv.kv_heads > 16 ||
      params.window < 0 || params.sm_count <= 0 || params.counters == nullptr ||
      params.out_stride % 8 != 0 || kv.block_size % maps.box_tokens != 0) {
    return cudaErrorInvalidValue;
  }
  if (params.num_tiles == 0) return cudaSuccess;
  const int32_t group = params.heads / kv.kv_heads;
  const uint64_t head_bytes = static_cast<uint64_t>(kv.head_dim) * 2;
  const TensorView view = {
      .base = params.q,
      .rank = 3,
      .dims = {static_cast<uint64_t>(kv.head_dim), static_cast<uint64_t>(params.heads),
               static_cast<uint64_t>(params.num_tokens)},
      .stride_bytes = {head_bytes, static_cast<uint64_t>(params.q_stride) * 2},
      .box = {kPanelColumns, static_cast<uint32_t>(group), static_cast<uint32_t>(kRows / group)}};
  CUtensorMap q_map;
  const cudaError_t status = encode_tensor_map(type, view, q_map);
  if (status != cudaSuccess) return status;
  const PrefillArgs args = {
      .tiles = params.tiles,
      .tables = kv.block_tables,
      .counters = params.counters,
      .out = params.out,
      .out_stride = params.out_stride,
      .block_size = Divisor::of(kv.block_size),
      .tile_count = params.tile_count,
      .items = params.num_tiles * kv.kv_heads,
      .kv_heads = kv.kv_heads,
      .group = group,
      .max_blocks = kv.max_blocks,
      .window = params.window,
      .box_tokens = maps.box_tokens,
      .scale = ScoreScale::of(params.scale, params.softcap, params.value_scale),
      .sinks = params.sinks,
  };
  const int32_t blocks = args.items < params.sm_count ? args.items : params.sm_count;
  return type == Half::kBF16
             ? choose_head_dim<__nv_bfloat16>(kv.head_dim, args, blocks, q_map, maps, launch)
             : choose_head_dim<__half>(kv.head_dim, args, blocks, q_map, maps, launch);
}

}  // namespace inferd::cuda
