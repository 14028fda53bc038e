// 1. y = x w^T (+ bias) (+ y) for m <= 4 rows, w small codes with scales, and k <= 4096; gated: y =
//    silu(x w_gate^T) * (x w_up^T). Either also of x divided by the root mean square of its rows
//    and multiplied by the weight of the norm.
// 2. x [m, k] f16 or bf16, 16-byte aligned rows; w as rows/coded_layout.h lays it out; y [m, n] of
//    the type of x or f32; bias [n] ([2 n]) of y's type; norm_weight [k] f32, 16-byte aligned.
// 3. As few_rows.cuh has it: of one block a multiprocessor 16 warps each multiply two tiles of 128
//    columns of every band of 16 rows, m warps add up. A warp's queue in shared memory, filled by
//    cp.async, needs no barrier. Codes go to mma.m16n8k16 as they are, and the sums of a group are
//    scaled (coded_sums.cuh). The queues are full before the kernel waits for the one ahead. Then
//    all threads together bring x in the order of products, by way of shared memory.
// 4. Shared memory: 4 tiles (1152 to 2560 bytes) a warp, and the sums of two bands, where x was put
//    in order before, 36 KB. 96 registers of 20 warps.
// 5. Weights are not rounded: f32 accumulation of codes over a group, of groups over k within a
//    warp, then over warps in a fixed order; one rounding at the end. What minima add has 16 bits.
// 6. From sm_80 where a block may have 102 to 196 KB, more of 8 bits; k and x_stride multiples of
//    8. Else cudaErrorInvalidValue.
// 7. Bytes n k (bits + scales) / 8: bound by memory. Llama-3-8B as int4 on an H100 with early
//    starts, weights in turn, m = 1, us (of the read ceiling, 3.09 TB/s; coded_small_gemm.cu before
//    it): qkv 8.2 62 % (9.1), o 7.0 49 % (7.3), gate_up 25.9 92 % (28.5). Steps: 1x128 2.22 ms
//    (2.49), 2x128 2.32 (2.59), 4x128 2.44 (2.62); as int8 3.04 (3.20), 3.15 (3.28), 3.28 (3.30).
// 8. Weights in the order of fragments and one stream of them: Marlin (Frantar et al. 2024). Scaled
//    sums instead of scaled weights: as integer products on CPUs have it, on tensor cores: ours.
// 9. Eight rows with four warps that add up: 8x128 2.83 instead of 2.72 ms, as each row of x takes
//    its time on the way to registers. One warp that adds up all: 4x128 2.66. No such warps, but
//    every second one adding up besides, as in coded_small_gemm.cu: what is done between bands then
//    takes as many instructions as the products, 60.8 us for a layer's products instead of 56.3; so
//    two blocks of 8 warps, 66.4, and 8 tiles ahead of a warp, 65.8.
#include <algorithm>

#include "cuda/device/device_limits.h"
#include "cuda/device/launch.cuh"
#include "cuda/gemm/few/coded_sums.cuh"
#include "cuda/gemm/few/few_rows.cuh"

namespace inferd::cuda {
namespace {

// A row of x in shared memory, as products take it, and its sums over groups.
constexpr int kTokenBytes = kMostColumns * 2 + kMostColumns / 16 * 4;
static_assert(kSumBytes <= kFewRows * kTokenBytes);

struct CodedFewArgs {
  GemmArgs gemm;
  CodedLayout layout;
};

// x of one of the warps that multiply.
template <typename T, int kBits>
struct HeldTokens {
  using S = CodedSums<T, kBits>;
  static constexpr int kRowBytes = kTokenBytes;
  int group;  // columns
  // Of a tile of columns, for each 32 of them what a lane has of B in two steps: b0, b1, b0, b1.
  uint4 tokens[kTiles][4];
  GroupSums group_sums[kTiles];

  // Word q of each of four lanes for 32 columns.
  __device__ void put(const uint32_t (&w)[4], uint8_t* to) const {
    const int thread = threadIdx.x, q = thread % 4;
    float total = 0.f;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 taken = S::numbers(w[e]);
      total += taken.x + taken.y;
      *reinterpret_cast<uint32_t*>(to + thread / 4 * 64 + e * 16 + q * 4) =
          S::prepared(w[e], q % 2 == 1);
    }
    for (int apart = 1; apart < group / 8; apart *= 2)
      total += __shfl_xor_sync(kFullWarp, total, apart);
    if (thread * 8 % group == 0)
      reinterpret_cast<float*>(to + kMostColumns * 2)[thread * 8 / group] = total * S::kXUnit;
  }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int chunk = 0; chunk < 4; ++chunk) tokens[i][chunk] = uint4{0, 0, 0, 0};
      group_sums[i] = {0, 0};
    }
  }

  __device__ void take(const uint8_t* from) {
    const int warp = threadIdx.x / kWarp, t = threadIdx.x % 4;
    const int groups = kTileColumns / group;  // of a tile
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int tile = i * kWarps + warp;
#pragma unroll
      for (int chunk = 0; chunk < 4; ++chunk) {
        tokens[i][chunk] = *reinterpret_cast<const uint4*>(from + tile * 256 + chunk * 64 + t * 16);
      }
      const float* of = reinterpret_cast<const float*>(from + kMostColumns * 2) + tile * groups;
      group_sums[i] = GroupSums::of<T, kBits>(2 * t < groups ? of[2 * t] : 0.f,
                                              2 * t + 1 < groups ? of[2 * t + 1] : 0.f);
    }
  }
};

template <typename T, int kBits, bool kMinima>
__global__ void __launch_bounds__((kWarps + kFewRows) * kWarp, 1)
    coded_few_kernel(const __grid_constant__ CodedFewArgs args) {
  using S = CodedSums<T, kBits>;
  constexpr int kCodeBytes = 256 * kBits;
  const GemmArgs& p = args.gemm;
  const CodedLayout& layout = args.layout;
  extern __shared__ uint8_t shared[];
  let_next_start();
  const int bands = layout.down(), across = layout.across(), grid = static_cast<int>(gridDim.x);
  const int first_band = static_cast<int>(blockIdx.x);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int tile_bytes = layout.tile_bytes();
  uint8_t* const common = shared + kWarps * kDeep * tile_bytes;  // x, then the sums
  float* const sums = reinterpret_cast<float*>(common);
  float* const squares = reinterpret_cast<float*>(common + kFewRows * kTokenBytes);
  if (warp >= kWarps) {
    wait_for_previous();
    add_up<T>(p, sums, squares, warp - kWarps, [](int) { return S::kUnit; });
    return;
  }

  // Of a band the tiles warp and kWarps + warp, one behind the other in this warp's queue.
  uint8_t* const queue = shared + warp * kDeep * tile_bytes;
  const int64_t turn_step = int64_t{grid} * across * tile_bytes;
  const uint8_t* from[kTiles];
  bool inside[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    const int column = i * kWarps + warp;
    inside[i] = column < across;
    from[i] = static_cast<const uint8_t*>(p.w.codes) +
              (int64_t{first_band} * across + column) * tile_bytes + lane * 16;
  }
  const bool has_scales = kCodeBytes + lane * 16 < tile_bytes;
  // Tile i of the next band that has not been asked for, if there is one, to a place of the queue.
  const auto fetch = [&](int i, bool live, uint32_t to) {
    if (live && inside[i]) {
#pragma unroll
      for (int at = 0; at < kCodeBytes; at += 512) stream16(to + at, from[i] + at);
      if (has_scales) stream16(to + kCodeBytes, from[i] + kCodeBytes);
    }
    copy_commit();  // empty groups keep the count of groups in step
    from[i] += turn_step;
  };
  const uint32_t queue_at = shared_address(queue) + lane * 16;
#pragma unroll 1
  for (int turn = 0; turn < kBandsAhead; ++turn) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
      fetch(i, first_band + turn * grid < bands, queue_at + (turn * kTiles + i) * tile_bytes);
  }
  // Before the wait, as it may come from far.
  float weight[8];
  load_norm_weight(p, weight);
  wait_for_previous();
  HeldTokens<T, kBits> x{.group = layout.group};
  load_tokens<T>(p, weight, common, squares, x);

  const ScalePlaces<kBits, kMinima> places(layout.group, g, t);
  int turn = 0, slot = 0;  // of kBandsAhead
  for (int band = first_band; band < bands; band += grid, ++turn) {
    float acc[4] = {}, minima[4] = {};
    const bool more = band + kBandsAhead * grid < bands;
    const int place = slot * kTiles * tile_bytes;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      copy_wait<kDeep - 1>();
      __syncwarp();
      if (inside[i]) {
        multiply_tile<T, kBits, kMinima>(queue + place + i * tile_bytes, lane, places, x.tokens[i],
                                         x.group_sums[i], acc, S::kApart ? minima : acc);
      }
      __syncwarp();
      fetch(i, more, queue_at + place + i * tile_bytes);  // where this one was
    }
    slot = slot + 1 == kBandsAhead ? 0 : slot + 1;
    if constexpr (S::kApart) {
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[e] = fmaf(minima[e], S::kMinimaUnit / S::kUnit, acc[e]);
    }
    hand_over(p, sums, turn, acc);
  }
}

CodedLayout layout_of(const GemmArgs& p) {
  return coded_layout(p.w.format, p.gated ? 2 * p.n : p.n, p.k, p.gated);
}

int shared_bytes(const CodedLayout& layout) {
  return kWarps * kDeep * layout.tile_bytes() + kFewRows * kTokenBytes + kSquareBytes;
}

template <typename T, int kBits, bool kMinima>
cudaError_t launch_bits(const CodedFewArgs& args, int multiprocessors, const Launch& launch) {
  return launch_kernel(
      coded_few_kernel<T, kBits, kMinima>,
      {.grid = dim3(static_cast<unsigned>(std::min(args.layout.down(), multiprocessors))),
       .threads = (kWarps + args.gemm.m) * kWarp,
       .shared_bytes = static_cast<size_t>(shared_bytes(args.layout))},
      launch, args);
}

template <typename T>
cudaError_t launch_type(const CodedFewArgs& args, int multiprocessors, const Launch& launch) {
  if (args.layout.bits == 4) {
    return args.layout.minima ? launch_bits<T, 4, true>(args, multiprocessors, launch)
                              : launch_bits<T, 4, false>(args, multiprocessors, launch);
  }
  return args.layout.minima ? launch_bits<T, 8, true>(args, multiprocessors, launch)
                            : launch_bits<T, 8, false>(args, multiprocessors, launch);
}

}  // namespace

bool coded_few_takes(const GemmArgs& p) {
  DeviceLimits device;
  return in_plain_tiles(p.w.format) && are_few_rows(p) && ask_limits(device) == cudaSuccess &&
         device.most_shared >= shared_bytes(layout_of(p));
}

cudaError_t coded_few_gemm(const GemmArgs& p, const Launch& launch) {
  DeviceLimits device;
  if (!coded_few_takes(p) || ask_limits(device) != cudaSuccess) return cudaErrorInvalidValue;
  const CodedFewArgs args = {.gemm = p, .layout = layout_of(p)};
  return p.type == Half::kF16 ? launch_type<__half>(args, device.multiprocessors, launch)
                              : launch_type<__nv_bfloat16>(args, device.multiprocessors, launch);
}

}  // namespace inferd::cuda
