// 1. out[row, head] = softmax(scale * q . K^T) V over the row's paged keys, one query a row;
//    merges its own partial results, so that a long row is spread over the device in one launch.
// 2. q [tokens, .. heads * head_dim] and out f16/bf16; caches [blocks, kv_heads, block_size,
//    head_dim] of the same type, e4m3 or int8; everything else as in attention_decode.h, which
//    see.
// 3. grid kv_heads x ctas. A block is a team of kWarps on one share of a row (a range of 16-key
//    tiles, the warps taking them in turn), or each of its warps has a short row of its own:
//
//      share of a row   | t0 | t1 | t2 | t3 | t4 | ..    team:  warp = tile % kWarps
//      mma m16n8k16     rows = the heads of the kv head (8 of 16 rows, or all), columns = keys
//
//    The last block of a row and kv head to finish (a ticket) adds the shares up in their order.
// 4. Each warp has a ring of its own, up to 6 stages of 16 keys and values, filled by cp.async:
//    96 KB a block, two blocks an SM on sm_90, one on sm_89. Up to 168 registers at head_dim <=
//    128.
// 5. f32 scores, sums and merge; probabilities rounded to the type of the mma. 8-bit caches are
//    widened to f16, which is exact; q too, clamped to its range. Relative error against float64:
//    bf16 2.3e-3, f16 2.4e-4. The same bits run to run: no result depends on the order in which
//    blocks finish.
// 6. head_dim 64, 96, 128, 256; 1 to 16 heads a kv head; block sizes that are multiples of 16
//    (others work, slower, by a look-up a row); sm_80 and later. Else cudaErrorInvalidValue.
// 7. Reads 2 * kv_bytes * kv_heads * head_dim * keys. H200, 32/8 heads of 128, blocks of 16 in
//    random order, 4.5 TB/s read ceiling; `plain` is a bare read of as many bytes, launch
//    included:
//      rows x keys    1x128 1x1024 16x1024 128x128 128x1024 8x8192 32x8192 1x16384 1x65536
//      bf16 us          4.4    8.4    21.6    21.7      131   70-77     252    25.5      72
//      plain us         2.3    3.3    17.7    17.6      123      64     242    17.6      63
//      of the ceiling                  69 %    69 %     91 %    80 %     95 %    59 %    83 %
//      e4m3 us          6.0    9.8    22.8    18.8       96      46     141    19.4      47
//    bf16 takes as long with the arithmetic left out; e4m3 is bound by the latency of the widening.
// 8. Split keys: Flash-Decoding (Dao et al. 2023); heads as rows: FlashInfer; paged cache: Kwon
//    et al. 2023; the online softmax: Milakov and Gimelshein 2018.
// 9. Tried, H200: the last block adding up all shares in one loop over them: 15 us at 1x16384,
//    now 3. Shares found by every block from the lengths: 41 -> 64 us at 256x128, hence the
//    plan. A team for every row: 26 instead of 21.7 us at 128x128, 48 instead of 41 at 256x128.
//    Unrolled ring start and merge (100 KB of code): 10.3 instead of 8.4 us at 1x1024,
//    instruction misses. 8 warps a block: 32 us at 128x128. 2 warps: 5.6 at 1x128. 3 blocks an
//    SM with a shorter ring: e4m3 88 instead of 96 us at 128x1024 but 188 instead of 141 at
//    32x8192, an uneven last wave. e4m3 widened by integer operations: 124 us at 128x1024.
#include <math_constants.h>

#include "attention_decode_merge.cuh"
#include "launch.cuh"

namespace inferd::cuda {
namespace {

// kRows: 8 serves groups of up to 8 heads, whose query rows 8..15 are zero; 16 the larger ones.
template <typename S, int kHeadDim, int kRows>
__global__ void __launch_bounds__(DecodeConfig<S, kHeadDim>::kThreads)
    decode_attention_kernel(const __grid_constant__ DecodeArgs p) {
  using C = DecodeConfig<S, kHeadDim>;
  using Tile = KvTile<S, kHeadDim>;
  using T = MmaType<S>;
  constexpr int kHalves = kRows / 8;
  extern __shared__ __align__(128) uint8_t ring_bytes[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int kv_head = blockIdx.x, kv_heads = gridDim.x, group = p.group;
  wait_for_previous();
  const DecodeShare share = p.shares[blockIdx.y * C::kWarps + warp];
  if (share.shares == 0) return;
  const bool team = share.team;  // the same for all warps of the block
  const KvRange range = {p.tables + static_cast<int64_t>(share.slot) * p.max_blocks,
                         p.block_size,
                         kv_head,
                         kv_heads,
                         share.first_key,
                         share.end_key};

  // This warp's tiles are first_tile + n * step for 0 <= n < count.
  const int32_t step = team ? C::kWarps : 1;
  const int32_t first_tile = share.tile_begin + (team ? warp : 0);
  const int32_t count = max(0, (share.tile_end - first_tile + step - 1) / step);
  uint8_t* ring = ring_bytes + warp * C::kWarpBytes;
  auto blocks_of = [&](int32_t n) {  // of tiles n .. n + 31, one a lane
    return range.block_of((first_tile + min(n + lane, count - 1) * step) * kTileTokens);
  };
  int32_t blocks = 0, next_blocks = count > 0 ? blocks_of(0) : 0;

  const int64_t token = share.token;
  typename Tile::template Query<kRows> q;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const int head = g + h * 8;
    const int64_t at = token * p.q_stride + (kv_head * group + head) * kHeadDim;
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        q[step][h * 2 + upper] =
            head < group ? load_query_pair<S>(p.q, at + Tile::q_dim(step, upper, t), p.is_bf16)
                         : 0u;
      }
    }
  }
  const float k_scale = p.k_scale != nullptr ? p.k_scale[kv_head * p.scale_stride] : 1.f;
  const float v_scale = p.v_scale != nullptr ? p.v_scale[kv_head * p.scale_stride] : 1.f;
  const float scale_log2 = p.scale_log2 * k_scale;

  float o[Tile::kColumns][4] = {};
  float top[2] = {-CUDART_INF_F, -CUDART_INF_F}, total[2] = {0.f, 0.f};  // of rows g and g + 8
  int stage = 0, fill_stage = 0;
  for (int32_t n = 1 - C::kStages; n < count; ++n) {  // the first turns only fill the ring
    const uint8_t* at = ring + stage * C::kStageBytes;
    float s[2][4] = {};
    if (n >= 0) {
      copy_wait<C::kStages - 2>();
      __syncwarp();  // all lanes' copies of this stage have landed, and none reads the one before
      Tile::template scores<kRows, kHeadDim <= 128 ? 2 : 1>(s, q, at, lane);
    }
    const int32_t fill = n + C::kStages - 1;
    if (fill < count) {
      if (fill % kWarp == 0) {
        blocks = next_blocks;
        if (fill + kWarp < count) next_blocks = blocks_of(fill + kWarp);
      }
      const int32_t tile = first_tile + fill * step;
      const int32_t block = __shfl_sync(kFullWarp, blocks, fill % kWarp);
      uint8_t* to = ring + fill_stage * C::kStageBytes;
      Tile::template copy<false>(to, p.k, range, tile, block, lane);
      Tile::template copy<true>(to + Tile::kBytes, p.v, range, tile, block, lane);
    }
    copy_commit();
    fill_stage = fill_stage + 1 == C::kStages ? 0 : fill_stage + 1;
    if (n < 0) continue;
    stage = stage + 1 == C::kStages ? 0 : stage + 1;
    const int32_t tile = first_tile + n * step;
    const int32_t key = tile * kTileTokens;
    if (key + kTileTokens > range.end || key < range.first) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int32_t mine = key + i / 4 * 8 + t * 2 + i % 2;
        if (mine >= range.end || mine < range.first) s[i / 4][i % 4] = -CUDART_INF_F;
      }
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float best = fmaxf(fmaxf(s[0][h * 2], s[0][h * 2 + 1]), fmaxf(s[1][h * 2], s[1][h * 2 + 1]));
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 1));
      best = fmaxf(best, __shfl_xor_sync(kFullWarp, best, 2));
      best = fmaxf(best, top[h]);  // finite: a tile of the range has a valid key
      const float keep = fast_exp2((top[h] - best) * scale_log2);
      top[h] = best;
      total[h] *= keep;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = s[i / 2][h * 2 + i % 2];
        x = fast_exp2((x - best) * scale_log2);
        total[h] += x;
      }
#pragma unroll
      for (int n = 0; n < Tile::kColumns; ++n) {
        o[n][h * 2] *= keep;
        o[n][h * 2 + 1] *= keep;
      }
    }
    const uint32_t a[4] = {
        pack2<T>(s[0][0], s[0][1]), kRows == 16 ? pack2<T>(s[0][2], s[0][3]) : 0u,
        pack2<T>(s[1][0], s[1][1]), kRows == 16 ? pack2<T>(s[1][2], s[1][3]) : 0u};
    Tile::accumulate(o, a, at + Tile::kBytes, lane);
  }
  let_next_start();  // what follows leaves the memory idle
  copy_wait<0>();
  __syncwarp();

  // Merge of a team's warps. Each leaves its sums in its own ring.
  __shared__ float warp_top[C::kWarps][kRows], warp_total[C::kWarps][kRows];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    total[h] += __shfl_xor_sync(kFullWarp, total[h], 1);
    total[h] += __shfl_xor_sync(kFullWarp, total[h], 2);
    const int head = g + h * 8;
    if (t == 0) {
      warp_top[warp][head] = top[h];
      warp_total[warp][head] = total[h];
    }
    float* dst = reinterpret_cast<float*>(ring) + head * C::kPitch;
#pragma unroll
    for (int n = 0; n < Tile::kColumns; ++n) {
      if constexpr (!Tile::kNarrow) {
        *reinterpret_cast<float2*>(dst + n * 8 + t * 2) = {o[n][h * 2], o[n][h * 2 + 1]};
      } else {
        dst[Tile::out_dim(n, t * 2)] = o[n][h * 2];
        dst[Tile::out_dim(n, t * 2 + 1)] = o[n][h * 2 + 1];
      }
    }
  }
  if (team) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  constexpr int kQuads = kHeadDim / 4;
  const int64_t out_at = token * p.out_stride + static_cast<int64_t>(kv_head) * group * kHeadDim;
  const int64_t slot = (static_cast<int64_t>(blockIdx.y) * kv_heads + kv_head) * group;
  const int first_warp = team ? 0 : warp, end_warp = team ? C::kWarps : warp + 1;
#pragma unroll 1
  for (int i = team ? threadIdx.x : lane; i < group * kQuads; i += step * kWarp) {
    const int head = i / kQuads;
    float best = -CUDART_INF_F, sum = 0.f;
#pragma unroll 1
    for (int w = first_warp; w < end_warp; ++w) best = fmaxf(best, warp_top[w][head]);
    float4 x = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 1
    for (int w = first_warp; w < end_warp; ++w) {
      const float factor = fast_exp2((warp_top[w][head] - best) * scale_log2);
      const float* src = reinterpret_cast<const float*>(ring_bytes + w * C::kWarpBytes) +
                         head * C::kPitch + i % kQuads * 4;
      x = scaled_sum(x, factor, *reinterpret_cast<const float4*>(src));
      sum += factor * warp_total[w][head];
    }
    if (share.shares == 1) {
      store_out<S>(p, out_at + i * 4, scaled_sum({0.f, 0.f, 0.f, 0.f}, v_scale / sum, x));
    } else {
      __stcg(reinterpret_cast<float4*>(p.partial_out) + slot * kQuads + i, x);
      if (i % kQuads == 0) __stcg(p.partial_sums + slot + head, make_float2(best * k_scale, sum));
    }
  }
  if (share.shares == 1) return;
  int32_t* ticket = p.tickets + static_cast<int64_t>(share.row) * kv_heads + kv_head;
  if (take_ticket(ticket, share.shares)) {
    merge_shares<S, kHeadDim>(p, share, out_at, v_scale, reinterpret_cast<float*>(ring_bytes));
  }
}

template <typename S, int kHeadDim, int kRows>
cudaError_t launch_rows(const DecodeArgs& args, dim3 grid, const Launch& launch) {
  using C = DecodeConfig<S, kHeadDim>;
  // A row has at most one share more than there are spare blocks: room for a merge of that many.
  const size_t shares = grid.y - args.rows + 1;
  const size_t merge_bytes = (shares * args.group + 16) * sizeof(float) + (C::kThreads + 1) * 16;
  const size_t bytes = merge_bytes > C::kRingBytes ? merge_bytes : C::kRingBytes;
  return launch_kernel(decode_attention_kernel<S, kHeadDim, kRows>, {grid, C::kThreads, bytes},
                       launch, args);
}

template <typename S, int kHeadDim>
cudaError_t choose_rows(const DecodeArgs& args, dim3 grid, const Launch& launch) {
  return args.group <= 8 ? launch_rows<S, kHeadDim, 8>(args, grid, launch)
                         : launch_rows<S, kHeadDim, 16>(args, grid, launch);
}

template <typename S>
cudaError_t choose_head_dim(int32_t head_dim, const DecodeArgs& args, dim3 grid,
                            const Launch& launch) {
  switch (head_dim) {
    case 64:
      return choose_rows<S, 64>(args, grid, launch);
    case 96:
      return choose_rows<S, 96>(args, grid, launch);
    case 128:
      return choose_rows<S, 128>(args, grid, launch);
    case 256:
      return choose_rows<S, 256>(args, grid, launch);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t decode_attention(Half type, const DecodeAttentionParams& params, const Launch& launch) {
  const PagedKv& kv = params.kv;
  if (params.rows < 0 || params.ctas < params.rows || kv.kv_heads <= 0 || kv.block_size <= 0 ||
      params.heads % kv.kv_heads != 0 || params.heads / kv.kv_heads > 16 || params.heads <= 0 ||
      params.ctas > 65535 || params.q_stride % 2 != 0 || params.out_stride % 4 != 0) {
    return cudaErrorInvalidValue;
  }
  if (params.rows == 0) return cudaSuccess;
  float2* sums = static_cast<float2*>(params.partials);
  const int64_t slots = static_cast<int64_t>(params.ctas) * params.heads;
  const DecodeArgs args = {
      .q = params.q,
      .k = kv.k,
      .v = kv.v,
      .out = params.out,
      .q_stride = params.q_stride,
      .out_stride = params.out_stride,
      .k_scale = kv.type == KvType::kActivation ? nullptr : kv.k_scale,
      .v_scale = kv.type == KvType::kActivation ? nullptr : kv.v_scale,
      .tables = kv.block_tables,
      .shares = params.shares,
      .tickets = params.tickets,
      .partial_sums = sums,
      .partial_out = reinterpret_cast<float*>(sums + (slots + 1) / 2 * 2),
      .block_size = Divisor::of(kv.block_size),
      .rows = params.rows,
      .group = params.heads / kv.kv_heads,
      .max_blocks = kv.max_blocks,
      .scale_stride = kv.scale_stride,
      .scale_log2 = params.scale * 1.44269504088896f,
      .is_bf16 = type == Half::kBF16,
  };
  const dim3 grid(kv.kv_heads, params.ctas);
  switch (kv.type) {
    case KvType::kFloat8:
      return choose_head_dim<Float8>(kv.head_dim, args, grid, launch);
    case KvType::kInt8:
      return choose_head_dim<Int8>(kv.head_dim, args, grid, launch);
    case KvType::kActivation:
      return type == Half::kBF16 ? choose_head_dim<__nv_bfloat16>(kv.head_dim, args, grid, launch)
                                 : choose_head_dim<__half>(kv.head_dim, args, grid, launch);
  }
  return cudaErrorInvalidValue;
}

}  // namespace inferd::cuda
