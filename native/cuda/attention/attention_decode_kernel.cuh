// The decode kernel, and its choice by shape: code of attention_decode.cu, of
// attention_decode_with_rope.cu and of attention_decode_runs.cu, which see.
#pragma once
#include <math_constants.h>

#include <type_traits>

#include "cuda/attention/attention_decode_merge.cuh"
#include "cuda/attention/attention_decode_rope.cuh"
#include "cuda/attention/attention_decode_row.cuh"
#include "cuda/attention/attention_decode_stream.cuh"
#include "cuda/device/launch.cuh"

namespace inferd::cuda {
namespace {

// kRows query rows of a kv head, of rows of the kind; kCapped: scores are capped.
template <typename S, int kHeadDim, int kRows, DecodeKind kKind, bool kCapped>
__global__ void __launch_bounds__(DecodeConfig<S, kHeadDim>::kThreads)
    decode_attention_kernel(const __grid_constant__ DecodeArgs p) {
  using C = DecodeConfig<S, kHeadDim>;
  using Tile = KvTile<S, kHeadDim>;
  constexpr bool kRuns = kKind == DecodeKind::kRuns;
  using Rope = std::conditional_t<kKind == DecodeKind::kWithRope, RowRope<S, kHeadDim>, NoRope>;
  extern __shared__ __align__(128) uint8_t ring_bytes[];
  __shared__ __align__(16) uint8_t rope_bytes[C::kWarps][Rope::kBytes];
  __shared__ float warp_top[C::kWarps][kRows], warp_total[C::kWarps][kRows];
  static_assert(C::kRingBytes + sizeof rope_bytes + 2 * sizeof warp_top + 128 <= kMostOnChipBytes);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int kv_head = blockIdx.x, group = p.group;
  uint8_t* ring = ring_bytes + warp * C::kWarpBytes;
  KvStream<S, kHeadDim> stream(p, ring, warp, lane);
  Rope rope(p, rope_bytes[warp], lane);

  int32_t entry = blockIdx.y * C::kWarps + warp;
  DecodeShare share = load_share(p.shares + entry);
  if (share.shares == 0 || share.chained) {
    wait_for_previous();
    return;
  }
  auto out_of = [&](const DecodeShare& of) {
    return of.token * p.out_stride + static_cast<int64_t>(kv_head) * group * kHeadDim;
  };
  for (;;) {  // one share of a team, or all of a lone warp's
    // Nothing of the last one lives through its merge.
    RowSums<S, kHeadDim, kRows, kRuns> row = {};
    WarpTiles<C> tiles(share, warp);
    stream.start(share);
    int32_t used = 0, stage = 0;
    // Turns below 0 only fill the ring, and up to `begin` with what this step does not write; with
    // a rope also with what put_key() then writes over.
    constexpr int32_t kAhead = C::kStages - 1;
    const int32_t settled = Rope::kActive ? min(tiles.count, kAhead) : tiles.settled(share, kAhead);
    const int32_t begin = settled - kAhead;
    rope.aim(share, tiles);
    for (int32_t turn = -kAhead;; ++turn) {
      bool fresh = turn == begin;
      if (turn >= 0 && used == tiles.count) {
        if (share.team) break;
        const int rows = kRuns ? group * share.run.tokens : group;
        row.finish();
#pragma unroll
        for (int h = 0; h < kRows / 8; ++h) {
          const int r = g + h * 8;
          uint16_t* out =
              static_cast<uint16_t*>(p.out) + out_of(share) + out_offset<kHeadDim, kRuns>(p, r);
          if (r >= rows) continue;
          const int head = QueryRow::of<kRuns>(p, r).head;
          const float total =
              sunk_total(row.total[h], row.top[h], p.scale, p.sinks, kv_head * group + head);
          Tile::store(out, row.o, h, 1.f / total, t, p.is_bf16);
        }
        if (share.next == 0) return;
        share = load_share(p.shares + share.next);
        tiles = WarpTiles<C>(share, warp);
        used = 0;
        fresh = true;
        rope.aim(share, tiles);
      }
      if (fresh) {
        wait_for_previous();
        let_next_start();
        rope.load_key(share);
        row.start(p, share, g, t);
        rope.template rotate_query<kRows>(row.q);
      }
      uint8_t* at = ring + stage * C::kStageBytes;
      float s[2][4] = {};
      if (turn >= 0) {
        copy_wait<C::kStages - 2>();
        __syncwarp();  // all lanes' copies of this stage have landed, and none reads the one before
        rope.put_key(share, tiles.first + used * tiles.step, at);
        Tile::template scores<kRows, kHeadDim <= 128 ? 2 : 1>(s, row.q, at, lane);
      }
      stream.copy_next();
      if (turn < 0) continue;
      const int32_t key = (tiles.first + used * tiles.step) * kTileTokens;
      int32_t first = share.first_key, end = share.end_key;
      if constexpr (kRuns) {  // of the last token, and of the first
        if (p.window > 0) first = max(0, end - p.window);
        end -= share.run.tokens - 1;
      }
      row.template add<kCapped>(s, at, at + Tile::kBytes, key, first, end, p.scale, lane);
      stage = stage + 1 == C::kStages ? 0 : stage + 1;
      ++used;
    }
    copy_wait<0>();
    __syncwarp();

    // Merge of the team's warps. Each leaves its sums in its own ring.
    row.finish();
#pragma unroll
    for (int h = 0; h < kRows / 8; ++h) {
      const int r = g + h * 8;
      if (t == 0) {
        warp_top[warp][r] = row.top[h];
        warp_total[warp][r] = row.total[h];
      }
      float* dst = reinterpret_cast<float*>(ring) + r * C::kPitch;
#pragma unroll
      for (int n = 0; n < Tile::kColumns; ++n) {
        if constexpr (!Tile::kNarrow) {
          *reinterpret_cast<float2*>(dst + n * 8 + t * 2) = {row.o[n][h * 2], row.o[n][h * 2 + 1]};
        } else {
          dst[Tile::out_dim(n, t * 2)] = row.o[n][h * 2];
          dst[Tile::out_dim(n, t * 2 + 1)] = row.o[n][h * 2 + 1];
        }
      }
    }
    __syncthreads();
    constexpr int kQuads = kHeadDim / 4;
    const int64_t out_at = out_of(share);
    const int32_t block = entry / C::kWarps;
    const int rows = kRuns ? group * share.run.tokens : group;
    const int64_t slot =
        (static_cast<int64_t>(block) * gridDim.x + kv_head) * (kRuns ? p.most_rows : group);
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * kQuads; i += C::kThreads) {
      const int r = i / kQuads;
      float best = -CUDART_INF_F, sum = 0.f;
#pragma unroll 1
      for (int w = 0; w < C::kWarps; ++w) best = fmaxf(best, warp_top[w][r]);
      float base = best;
      if constexpr (kRuns) base = best == -CUDART_INF_F ? 0.f : best;  // no key of this share
      float4 x = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 1
      for (int w = 0; w < C::kWarps; ++w) {
        const float factor = fast_exp2((warp_top[w][r] - base) * p.scale.log2);
        const float* src = reinterpret_cast<const float*>(ring_bytes + w * C::kWarpBytes) +
                           r * C::kPitch + i % kQuads * 4;
        x = scaled_sum(x, factor, *reinterpret_cast<const float4*>(src));
        sum += factor * warp_total[w][r];
      }
      if (share.shares == 1) {
        const int head = QueryRow::of<kRuns>(p, r).head;
        sum = sunk_total(sum, best, p.scale, p.sinks, kv_head * group + head);
        store_out<S>(p, out_at + out_offset<kHeadDim, kRuns>(p, r) + i % kQuads * 4,
                     scaled_sum({0.f, 0.f, 0.f, 0.f}, 1.f / sum, x));
      } else {
        __stcg(reinterpret_cast<float4*>(p.partial_out) + slot * kQuads + i, x);
        if (i % kQuads == 0) __stcg(p.partial_sums + slot + r, make_float2(best, sum));
      }
    }
    if (share.shares > 1) {
      int32_t* ticket = p.tickets + static_cast<int64_t>(share.row) * gridDim.x + kv_head;
      if (take_ticket(ticket, share.shares)) {
        if constexpr (kRuns) {
          merge_run_shares<S, kHeadDim>(p, share, block, out_at,
                                        reinterpret_cast<float*>(ring_bytes));
        } else {
          merge_shares<S, kHeadDim>(p, share, block, out_at, reinterpret_cast<float*>(ring_bytes));
        }
      }
    }
    if (share.next == 0) return;
    __syncthreads();  // the rings are free again
    entry = share.next;
    share = load_share(p.shares + entry);
    if (share.shares == 0) return;  // a lone warp without a row
  }
}

template <typename S, int kHeadDim, int kRows, DecodeKind kKind, bool kCapped>
cudaError_t launch_rows(const DecodeArgs& args, dim3 grid, const Launch& launch) {
  using C = DecodeConfig<S, kHeadDim>;
  const size_t merge_bytes =
      (static_cast<size_t>(args.most_shares) * args.most_rows + kMostQueryRows) * sizeof(float) +
      (C::kThreads + 1) * 16;
  const size_t bytes = merge_bytes > C::kRingBytes ? merge_bytes : C::kRingBytes;
  return launch_kernel(decode_attention_kernel<S, kHeadDim, kRows, kKind, kCapped>,
                       {grid, C::kThreads, bytes}, launch, args);
}

template <typename S, int kHeadDim, DecodeKind kKind, bool kCapped>
cudaError_t choose_rows(const DecodeArgs& args, dim3 grid, const Launch& launch) {
  if constexpr (kKind == DecodeKind::kRuns) {
    return launch_rows<S, kHeadDim, 16, kKind, kCapped>(args, grid, launch);
  } else {
    return args.group <= 8 ? launch_rows<S, kHeadDim, 8, kKind, kCapped>(args, grid, launch)
                           : launch_rows<S, kHeadDim, 16, kKind, kCapped>(args, grid, launch);
  }
}

template <typename S, int kHeadDim, DecodeKind kKind>
cudaError_t choose_cap(const DecodeArgs& args, dim3 grid, const Launch& launch) {
  // decode_attention() has refused the others; they would only be compiled.
  constexpr bool kIsCompiled =
      kKind != DecodeKind::kWithRope || decode_attention_takes_rope(kHeadDim, sizeof(S) == 1);
  if constexpr (kIsCompiled) {
    return args.scale.cap_log2 == 0.f ? choose_rows<S, kHeadDim, kKind, false>(args, grid, launch)
                                      : choose_rows<S, kHeadDim, kKind, true>(args, grid, launch);
  } else {
    return cudaErrorInvalidValue;
  }
}

template <typename S, DecodeKind kKind>
cudaError_t choose_head_dim(int32_t head_dim, const DecodeArgs& args, dim3 grid,
                            const Launch& launch) {
  switch (head_dim) {
    case 64:
      return choose_cap<S, 64, kKind>(args, grid, launch);
    case 96:
      return choose_cap<S, 96, kKind>(args, grid, launch);
    case 128:
      return choose_cap<S, 128, kKind>(args, grid, launch);
    case 256:
      return choose_cap<S, 256, kKind>(args, grid, launch);
    default:
      return cudaErrorInvalidValue;
  }
}

template <DecodeKind kKind>
cudaError_t choose_cache(Half type, const PagedKv& kv, const DecodeArgs& args, dim3 grid,
                         const Launch& launch) {
  switch (kv.type) {
    case KvType::kFloat8:
      return choose_head_dim<Float8, kKind>(kv.head_dim, args, grid, launch);
    case KvType::kInt8:
      return choose_head_dim<Int8, kKind>(kv.head_dim, args, grid, launch);
    case KvType::kActivation:
      return type == Half::kBF16
                 ? choose_head_dim<__nv_bfloat16, kKind>(kv.head_dim, args, grid, launch)
                 : choose_head_dim<__half, kKind>(kv.head_dim, args, grid, launch);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

}  // namespace inferd::cuda
