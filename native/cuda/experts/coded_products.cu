// 1. As expert_products.cu, of weights that are codes in tiles: y = gate(x w_gate^T + b_gate) *
//    (x w_up^T + b_up), or y = x w^T + b, of each expert's matrices with the rows of its tokens.
// 2. x rows f16 or bf16, k a multiple of 8; w as rows/coded_layout.h lays it out, not paired; y of
//    that type where it is gated, else f32; outputs a multiple of 16 where it is gated.
// 3. A block is up to 8, 16 or 32 pairs of one expert by 16 outputs: a row of tiles of w, or one of
//    the gate and one of the other part. Its 4 warps take tiles of 128 columns in turn. A lane
//    reads its codes and scales as they lie, those of the next tile ahead of the products of this
//    one; codes become 16-bit weights in registers (rows/coded_tile.cuh) and go to mma.m16n8k16 as
//    A, x as B.
// 4. The sums of the warps in 2 KB of shared memory for each 8 pairs and part. x comes through L1.
// 5. Weights are rounded once to the 16-bit type, those of e2m1 not at all; f32 sums in a fixed
//    order, the same in tiles of any width: a row's bits depend on its input alone.
// 6. Any architecture from sm_80. The grid follows from the number of pairs that there may be:
//    blocks beyond the last tile end at once.
// 7. Reads an expert's codes once for a tile of its tokens. One token of gpt-oss-20b on an H200 (4
//    experts in e2m1): 30.9 us gated, 21.7 us plain, where their bytes take 8 and 4; 720 blocks,
//    of which 660 run at once. The step takes 1.87 ms, by weights widened to bf16 2.45.
// 8. Experts by groups: see expert_products.cu; codes in the order of fragments: see
//    gemm/tiles/coded_small_gemm.cu.
// 9. Early start of the plain product, which found its tile and fetched its first weights in the
//    tail of the gated one: a step 1.91 ms for 1.87, of 8 tokens 4.5 for 3.9. Six blocks on a
//    multiprocessor, so that all 720 run at once, with 80 registers and a few spilled: 1.86, 4.0.
//    On an H100, up to 8 tokens by kernels whose 8 warps ask for all their tiles at once, by
//    cp.async, and whose second one of 16 warps a band adds up over experts too and fetches ahead:
//    gpt-oss-20b 2.18 ms for 2.09, of 4 tokens 3.56 for 3.24, of 8 4.78 for 4.31; Qwen3-30B-A3B as
//    int4 2.25 for 2.26, of 8 5.46 for 5.50.
//    There too, up to 8 tokens by one block a multiprocessor, 16 warps with a queue of four tiles
//    each in shared memory, that go on from expert to expert, x in the order of products in shared
//    memory and sums scaled in place of weights, the plain product's first tiles asked for before
//    the gated one ends: 25.0 us gated for 23.3, 12.4 plain for 13.7, both 36.0 for 35.6, of 8
//    tokens 134 for 132. Copies alone take 23 and 10.9 of it, with 22 experts chosen 75 and 38 at
//    3.1 TB/s: some 10 us of a product are its start and end. With sums scaled a step of 16 columns
//    is 40 instructions, 18 of them at half the issue rate, of which 12 unpack e2m1: 24 warps in
//    place of 16 were no quicker. Next: codes stored so that fewer operations unpack them, and one
//    kernel for both products.
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/experts/coded_products.h"
#include "cuda/experts/expert_tile.cuh"
#include "cuda/rows/coded_tile.cuh"

namespace inferd::cuda {
namespace {

// How codes are read: their bits, and what a lane has of the scales of a tile, one for each
// kTileColumns128 / kGroups columns.
template <typename T, int kBits_, bool kMinima>
struct IntegerCodes {
  static constexpr int kBits = kBits_, kGroups = kBits == 4 ? 4 : 8;
  using Entry = std::conditional_t<kMinima, uint2, uint32_t>;
  using Scales = CodedScales<T, kBits>;

  static __device__ Scales scales(const Entry& entry) {
    Scales s;
    if constexpr (kMinima) {
      s.template take<true>(entry);
    } else {
      s.template take<false>({entry, 0});
    }
    return s;
  }
};

template <typename T>
struct Float4Codes {
  static constexpr int kBits = 4, kGroups = 4;
  using Entry = uint16_t;
  using Scales = Float4Scales<T>;

  static __device__ Scales scales(const Entry& entry) {
    Scales s;
    s.take(entry);
    return s;
  }
};

template <typename Codes>
struct TileOfLane {
  static constexpr int kPieces = Codes::kBits / 2;
  uint4 codes[kPieces];
  typename Codes::Entry entries[Codes::kGroups];

  __device__ void load(const uint8_t* tile, int lane, int group_log2) {
    constexpr int kEntryBytes = static_cast<int>(sizeof(typename Codes::Entry));
    constexpr int kColumns = kTileColumns128 / Codes::kGroups;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) codes[i] = load_once(tile + i * 512 + lane * 16);
    const uint8_t* scales = tile + kPieces * 512 + lane / 4 * kEntryBytes;
#pragma unroll
    for (int i = 0; i < Codes::kGroups; ++i) {
      entries[i] = __ldg(reinterpret_cast<const typename Codes::Entry*>(
          scales + (i * kColumns >> group_log2) * 8 * kEntryBytes));
    }
  }
};

struct CodedTiles {
  ExpertProduct product;
  Gate gate;
  int32_t group_log2;
};

// Blocks of a multiprocessor, at least, as registers allow: the more, the more loads are under way.
template <typename Codes, int kParts, int kColumns>
constexpr int kLeastBlocks = kColumns > 1 || Codes::kBits* kParts > 8      ? 2
                             : sizeof(typename Codes::Entry) * kParts <= 4 ? 5
                                                                           : 4;

template <typename T, typename Codes, int kParts, int kColumns>
__global__ void __launch_bounds__(kExpertThreads, kLeastBlocks<Codes, kParts, kColumns>)
    coded_product_kernel(const __grid_constant__ CodedTiles args) {
  constexpr int kSteps = kStepsOf16Bytes<Codes::kBits>, kAllSteps = kTileColumns128 / 16;
  const ExpertProduct& p = args.product;
  __shared__ SliceSums<kParts, kColumns> slices;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  let_next_start();
  wait_for_previous();
  const ExpertTile tile =
      find_tile<kColumns * kSliceTokens>(p, static_cast<int32_t>(blockIdx.y), lane);
  if (tile.expert < 0) return;
  const int32_t first = static_cast<int32_t>(blockIdx.x) * kSliceOutputs;
  const int32_t across = p.layout.across(), tile_bytes = p.layout.tile_bytes();
  const uint8_t* w[kParts];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int64_t row = tile.expert * p.w_rows + int64_t{part} * p.outputs + first;
    w[part] = static_cast<const uint8_t*>(p.w) + row / kTileRows16 * across * tile_bytes;
  }
  float sums[kParts][kColumns][4] = {};
  TileOfLane<Codes> now[kParts], next[kParts];
  const auto fetch = [&](TileOfLane<Codes>(&to)[kParts], int32_t column) {
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      to[part].load(w[part] + column * tile_bytes, lane, args.group_log2);
  };
  if (warp < across) fetch(now, warp);
  const T* x[kColumns];
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int32_t at = min(tile.begin + n * kSliceTokens + g, tile.end - 1);
    x[n] = static_cast<const T*>(p.x) + row_of_pair(p, at) * p.x_stride;
  }
  for (int32_t column = warp; column < across; column += kSliceWarps) {
    if (column + kSliceWarps < across) fetch(next, column + kSliceWarps);
#pragma unroll
    for (int step = 0; step < kAllSteps; ++step) {
      // Weights beyond k are any numbers, since the last block is filled up: they meet zeros.
      const int32_t at = column * kTileColumns128 + step * 16 + 2 * t;
      uint32_t b[kColumns][2];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        b[n][0] = at < p.k ? *reinterpret_cast<const uint32_t*>(x[n] + at) : 0;
        b[n][1] = at + 8 < p.k ? *reinterpret_cast<const uint32_t*>(x[n] + at + 8) : 0;
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const auto scales = Codes::scales(now[part].entries[step * Codes::kGroups / kAllSteps]);
        const uint4& codes = now[part].codes[step / kSteps];
        uint32_t a[4];
        if constexpr (Codes::kBits == 4) {
          const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
          unpack_step<T>(words[step % kSteps], scales, a);
        } else {
          unpack_step<T, Codes::kBits>(codes, step % kSteps, scales, a);
        }
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
          mma16816<T>(sums[part][n], a[0], a[1], a[2], a[3], b[n][0], b[n][1]);
      }
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) now[part] = next[part];
  }
  share_slices(sums, slices);
  finish_tile<T>(p, args.gate, tile, first, slices, coded_unit<T>);
}

template <typename T, typename Codes, int kParts, int kColumns>
cudaError_t run_columns(const CodedTiles& args, const Launch& launch) {
  const ExpertProduct& p = args.product;
  const dim3 grid(static_cast<unsigned>((p.outputs + kSliceOutputs - 1) / kSliceOutputs),
                  static_cast<unsigned>(most_tiles(p, kColumns * kSliceTokens)));
  return launch_kernel(coded_product_kernel<T, Codes, kParts, kColumns>,
                       {.grid = grid, .threads = kExpertThreads}, launch, args);
}

// Tiles as wide as experts have tokens on average: a row's bits are the same in all of them.
template <typename T, typename Codes, int kParts>
cudaError_t run(const CodedTiles& args, const Launch& launch) {
  constexpr int kWide = Codes::kBits * kParts > 8 ? 2 : 4;  // what registers allow
  const bool few = args.product.count / args.product.held <= 6;
  return few ? run_columns<T, Codes, kParts, 1>(args, launch)
             : run_columns<T, Codes, kParts, kWide>(args, launch);
}

template <typename T, typename Codes>
cudaError_t run_parts(bool gated, const CodedTiles& args, const Launch& launch) {
  return gated ? run<T, Codes, 2>(args, launch) : run<T, Codes, 1>(args, launch);
}

template <typename T>
cudaError_t run_codes(bool gated, const CodedTiles& args, const Launch& launch) {
  const CodedLayout& layout = args.product.layout;
  if (layout.float4) return run_parts<T, Float4Codes<T>>(gated, args, launch);
  if (layout.bits == 4) {
    return layout.minima ? run_parts<T, IntegerCodes<T, 4, true>>(gated, args, launch)
                         : run_parts<T, IntegerCodes<T, 4, false>>(gated, args, launch);
  }
  return layout.minima ? run_parts<T, IntegerCodes<T, 8, true>>(gated, args, launch)
                       : run_parts<T, IntegerCodes<T, 8, false>>(gated, args, launch);
}

}  // namespace

cudaError_t coded_expert_product(Half type, bool gated, Gate gate, const ExpertProduct& p,
                                 const Launch& launch) {
  const CodedLayout& layout = p.layout;
  const bool takes = !layout.paired && layout.cols == p.k && p.w_rows % kTileRows16 == 0 &&
                     (!gated || p.outputs % kTileRows16 == 0) &&
                     layout.group >= (layout.bits == 4 ? 32 : 16);
  if (!takes) return cudaErrorInvalidValue;
  int32_t group_log2 = 0;
  while ((1 << group_log2) < layout.group) ++group_log2;
  const CodedTiles args{.product = p, .gate = gate, .group_log2 = group_log2};
  return type == Half::kBF16 ? run_codes<__nv_bfloat16>(gated, args, launch)
                             : run_codes<__half>(gated, args, launch);
}

}  // namespace inferd::cuda
