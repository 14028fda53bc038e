// 1. y = x w^T (+ bias) (+ y) for m <= 4 rows, w small codes with scales, and k <= 4096; gated: y =
//    silu(x w_gate^T) * (x w_up^T). Either also of x divided by the root mean square of its rows
//    and multiplied by the weight of the norm.
// 2. x [m, k] f16 or bf16, 16-byte aligned rows; w as rows/coded_layout.h lays it out; y [m, n] of
//    the type of x or f32; bias [n] ([2 n]) of y's type; norm_weight [k] f32, 16-byte aligned.
// 3. One block a multiprocessor takes bands of 16 rows of w in turn:
//
//      16 warps    each two tiles of 128 columns of every band, with x for them in registers; a
//                  queue of their own in shared memory, filled by cp.async, needs no barrier
//      m warps     add up a band's sums, a token each, and store them, while the others are at the
//                  next band
//
//    Codes go to mma.m16n8k16 as they are, and the sums of a group are scaled (coded_sums.cuh). The
//    queues are full before the kernel waits for the one ahead. Then all threads together bring x
//    in the order of products, by way of shared memory: a thread has 8 columns of each row.
// 4. Shared memory: 4 tiles (1152 to 2560 bytes) a warp, and the sums of two bands, where x was put
//    in order before, 36 KB. 96 registers of 20 warps.
// 5. Weights are not rounded: f32 accumulation of codes over a group, of groups over k within a
//    warp, then over warps in a fixed order; one rounding at the end. What minima add has 16 bits.
// 6. From sm_80 where a block may have 128 KB; k and x_stride multiples of 8. Else
//    cudaErrorInvalidValue.
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
#include "cuda/gemm/small_gemm.h"
#include "cuda/gemm/tiles/coded_queue.cuh"
#include "cuda/gemm/tiles/coded_sums.cuh"

namespace inferd::cuda {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * kWarp;  // that multiply
constexpr int kTiles = 2;                              // of a band, of a warp
constexpr int kBandsAhead = 2, kDeep = kBandsAhead * kTiles;
constexpr int kMostColumns = kWarps * kTiles * kTileColumns128;
constexpr int kNeededShared = 128 << 10;
// A row of x in shared memory, as products take it, and its sums over groups.
constexpr int kRowBytes = kMostColumns * 2 + kMostColumns / 16 * 4;
// The sums of a band: [copy][warp][token][row of 16].
constexpr int kPitch = 16 + 1, kSumBytes = 2 * kWarps * kCodedFewRows * kPitch * 4;
static_assert(kThreads * 8 == kMostColumns && kSumBytes <= kCodedFewRows * kRowBytes);

struct CodedFewArgs {
  GemmArgs gemm;
  CodedLayout layout;
};

// Barriers to which all warps of the block come: of x in shared memory; of a copy of the sums, when
// all have written it, and when it is free again.
constexpr int kTokensBarrier = 1;
constexpr int sums_written(int copy) { return 2 + copy; }
constexpr int sums_added(int copy) { return 4 + copy; }

// x of one of the warps that multiply.
template <typename T, int kBits>
struct HeldTokens {
  using S = CodedSums<T, kBits>;
  // Of a tile of columns, for each 32 of them what a lane has of B in two steps: b0, b1, b0, b1.
  uint4 tokens[kTiles][4];
  GroupSums group_sums[kTiles];

  // Eight columns of this thread to `to`: word q of each of four lanes for 32 columns. `weight`: of
  // the norm.
  __device__ static void put(const CodedFewArgs& args, const uint4& row, const float (&weight)[8],
                             uint8_t* to, float* square_to) {
    const GemmArgs& p = args.gemm;
    const int thread = threadIdx.x, q = thread % 4;
    uint32_t w[4] = {row.x, row.y, row.z, row.w};
    float square = 0.f, total = 0.f;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (p.norm_x) {
        const float2 pair = unpack2<T>(w[e]);
        square = fmaf(pair.x, pair.x, fmaf(pair.y, pair.y, square));
        if (p.norm_weight != nullptr)
          w[e] = pack2<T>(pair.x * weight[2 * e], pair.y * weight[2 * e + 1]);
      }
      const float2 taken = S::numbers(w[e]);
      total += taken.x + taken.y;
      *reinterpret_cast<uint32_t*>(to + thread / 4 * 64 + e * 16 + q * 4) =
          S::prepared(w[e], q % 2 == 1);
    }
    const int group = args.layout.group;
    for (int apart = 1; apart < group / 8; apart *= 2)
      total += __shfl_xor_sync(kFullWarp, total, apart);
    if (thread * 8 % group == 0)
      reinterpret_cast<float*>(to + kMostColumns * 2)[thread * 8 / group] = total * S::kXUnit;
    if (p.norm_x) {
#pragma unroll
      for (int apart = 1; apart < kWarp; apart *= 2)
        square += __shfl_xor_sync(kFullWarp, square, apart);
      if (thread % kWarp == 0) *square_to = square;
    }
  }

  __device__ void take(const CodedFewArgs& args, const uint8_t* from) {
    const int warp = threadIdx.x / kWarp, t = threadIdx.x % 4;
    const int groups = kTileColumns128 / args.layout.group;  // of a tile
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

  // All of it, by way of `place` in shared memory. `squares` [warp][token]: sums of squares.
  __device__ void load(const CodedFewArgs& args, const float (&weight)[8], uint8_t* place,
                       float* squares) {
    const GemmArgs& p = args.gemm;
    const int own = static_cast<int>(threadIdx.x) * 8, g = threadIdx.x % kWarp / 4;
    uint4 rows[kCodedFewRows];
#pragma unroll
    for (int r = 0; r < kCodedFewRows; ++r) {
      rows[r] = uint4{0, 0, 0, 0};
      if (r < p.m && own < p.k)
        rows[r] =
            *reinterpret_cast<const uint4*>(static_cast<const T*>(p.x) + r * p.x_stride + own);
    }
#pragma unroll
    for (int r = 0; r < kCodedFewRows; ++r) {
      if (r < p.m) {
        put(args, rows[r], weight, place + r * kRowBytes,
            squares + threadIdx.x / kWarp * kCodedFewRows + r);
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int chunk = 0; chunk < 4; ++chunk) tokens[i][chunk] = uint4{0, 0, 0, 0};
      group_sums[i] = {0, 0};
    }
    warps_sync(kTokensBarrier, kWarps + p.m);
    if (g < p.m) take(args, place + g * kRowBytes);
    warps_sync(kTokensBarrier, kWarps + p.m);
  }
};

// What a warp that adds up does: all bands of `token`.
template <typename T, int kBits>
__device__ void add_up(const CodedFewArgs& args, const float* sums, const float* squares,
                       int token) {
  const GemmArgs& p = args.gemm;
  const int all = kWarps + p.m, bands = args.layout.down(), grid = static_cast<int>(gridDim.x);
  const int lane = threadIdx.x % kWarp, part = lane % 2, at = lane / 2;  // two lanes a row
  // A gate and its factor are rows apart, and two lanes.
  const int gated = p.gated ? 1 : 0, up = at & gated, output = at >> gated;
  const int row = p.gated ? output + up * 8 : at;
  const bool f32 = p.out == GemmOut::kF32;
  float factor = CodedSums<T, kBits>::kUnit;
  int copy = 0;
  for (int band = blockIdx.x; band < bands; band += grid, copy ^= 1) {
    warps_sync(sums_written(copy), all);
    if (p.norm_x && band == static_cast<int>(blockIdx.x)) {
      float square = squares[lane % kWarps * kCodedFewRows + token];
#pragma unroll
      for (int apart = 1; apart < kWarps; apart *= 2)
        square += __shfl_xor_sync(kFullWarp, square, apart);
      factor *= rsqrtf(square / static_cast<float>(p.k) + p.norm_eps);
    }
    const float* from = sums + ((copy * kWarps + part) * kCodedFewRows + token) * kPitch + row;
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < kWarps; w += 2) sum += from[w * kCodedFewRows * kPitch];
    sum += __shfl_xor_sync(kFullWarp, sum, 1);
    // Where somebody will wait for it: no barrier is left half complete.
    if (band + 2 * grid < bands) warps_arrive(sums_added(copy), all);
    sum *= factor;
    const int out = band * (16 >> gated) + output;
    const bool inside = out < p.n;
    if (p.bias != nullptr && inside) {
      const int of = up * p.n + out;
      sum +=
          f32 ? static_cast<const float*>(p.bias)[of] : to_float(static_cast<const T*>(p.bias)[of]);
    }
    if (p.gated) sum = silu(sum) * __shfl_xor_sync(kFullWarp, sum, 2);
    if (part != 0 || up != 0 || !inside) continue;
    const int64_t to = token * p.y_stride + out;
    if (f32) {
      float* y = static_cast<float*>(p.y) + to;
      *y = p.add_to_y ? *y + sum : sum;
    } else {
      T* y = static_cast<T*>(p.y) + to;
      *y = from_float<T>(p.add_to_y ? to_float(*y) + sum : sum);
    }
  }
}

template <typename T, int kBits, bool kMinima>
__global__ void __launch_bounds__((kWarps + kCodedFewRows) * kWarp, 1)
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
  float* const sums = reinterpret_cast<float*>(shared + kWarps * kDeep * tile_bytes);
  float* const squares = sums + kCodedFewRows * kRowBytes / 4;  // [warp][token]
  if (warp >= kWarps) {
    wait_for_previous();
    for (int i = 0; i < 2; ++i) warps_sync(kTokensBarrier, kWarps + p.m);
    add_up<T, kBits>(args, sums, squares, warp - kWarps);
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
  const int own = static_cast<int>(threadIdx.x) * 8;
  float weight[8] = {1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f, 1.f};
  if (p.norm_weight != nullptr && own < p.k) {
    const float4* of = reinterpret_cast<const float4*>(p.norm_weight + own);
    const float4 low = of[0], high = of[1];
    weight[0] = low.x, weight[1] = low.y, weight[2] = low.z, weight[3] = low.w;
    weight[4] = high.x, weight[5] = high.y, weight[6] = high.z, weight[7] = high.w;
  }
  wait_for_previous();
  HeldTokens<T, kBits> x;
  x.load(args, weight, reinterpret_cast<uint8_t*>(sums), squares);

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
    const int copy = turn % 2;
    if (turn >= 2) warps_sync(sums_added(copy), kWarps + p.m);
    // Rows g (0, 1) and 8 more (2, 3) of w, tokens 2 t and the next.
    if (t < kCodedFewRows / 2) {
      float* mine = sums + ((copy * kWarps + warp) * kCodedFewRows + t * 2) * kPitch + g;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float sum = acc[e];
        if constexpr (S::kApart) sum = fmaf(minima[e], S::kMinimaUnit / S::kUnit, sum);
        mine[(e & 1) * kPitch + (e >> 1) * 8] = sum;
      }
    }
    __syncwarp();
    warps_arrive(sums_written(copy), kWarps + p.m);
  }
}

CodedLayout layout_of(const GemmArgs& p) {
  return coded_layout(p.w.format, p.gated ? 2 * p.n : p.n, p.k, p.gated);
}

template <typename T, int kBits, bool kMinima>
cudaError_t launch_bits(const CodedFewArgs& args, int multiprocessors, const Launch& launch) {
  const int bytes = kWarps * kDeep * args.layout.tile_bytes() + kCodedFewRows * kRowBytes +
                    kWarps * kCodedFewRows * static_cast<int>(sizeof(float));
  return launch_kernel(
      coded_few_kernel<T, kBits, kMinima>,
      {.grid = dim3(static_cast<unsigned>(std::min(args.layout.down(), multiprocessors))),
       .threads = (kWarps + args.gemm.m) * kWarp,
       .shared_bytes = static_cast<size_t>(bytes)},
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
  return in_plain_tiles(p.w.format) && p.m >= 1 && p.m <= kCodedFewRows && p.n >= 1 && p.k >= 8 &&
         p.k <= kMostColumns && p.k % 8 == 0 && p.x_stride % 8 == 0 &&
         !(p.gated && (p.add_to_y || p.out == GemmOut::kF32)) &&
         ask_limits(device) == cudaSuccess && device.most_shared >= kNeededShared;
}

cudaError_t coded_few_gemm(const GemmArgs& p, const Launch& launch) {
  DeviceLimits device;
  if (!coded_few_takes(p) || ask_limits(device) != cudaSuccess) return cudaErrorInvalidValue;
  const CodedFewArgs args = {.gemm = p, .layout = layout_of(p)};
  return p.type == Half::kF16 ? launch_type<__half>(args, device.multiprocessors, launch)
                              : launch_type<__nv_bfloat16>(args, device.multiprocessors, launch);
}

}  // namespace inferd::cuda
