// 1. y = x w^T (+ bias) (+ y) for m <= 16 rows, w small codes with scales; gated: y =
//    silu(x w_gate^T) * (x w_up^T). Either also of x divided by the root mean square of its rows
//    and multiplied by the weight of the norm. More rows are taken 16 at a time.
// 2. x [m, k] f16 or bf16, 16-byte aligned rows; w as rows/coded_layout.h lays it out; y [m, n] of
//    the type of x or f32; bias [n] ([2 n]) of y's type; norm_weight [k] f32.
// 3. One block a multiprocessor takes bands of 16 rows of w (32 where x is not held) in turn. Its
//    warps deal a band's tiles of 128 columns round robin; each has a queue of its own in shared
//    memory, filled by cp.async, which needs no barrier of the block. Codes become pairs of 16-bit
//    weights in registers (rows/coded_tile.cuh) and go to mma.m16n8k16 as A, x as B.
//    x comes in pieces of 16 bytes a lane, which quads of lanes exchange for the order of B. Up to
//    two tiles a warp it stays in registers for all bands; else it comes through L1 for each.
//    Where x is held, the warps' sums of a band are added up a band later, by either half of the
//    warps in turn, so that none waits for another.
//    The queues run on across bands, and are full before the kernel waits for the one ahead.
// 4. Shared memory: 2 to 4 stages of a tile (1056 to 2560 bytes, twice where x is not held) a warp,
//    and the sums of the warps, up to 35 KB. 16 warps, or 8 where a block may only have 99 KB.
// 5. Weights are rounded once to the 16-bit type; f32 accumulation over k within a warp, then over
//    warps in a fixed order; one rounding at the end.
// 6. From sm_80; k and x_stride multiples of 8; norm_x only where x is held. Else
//    cudaErrorInvalidValue.
// 7. Bytes n k (bits + scales) / 8: bound by memory up to some 8 rows.
// 8. Weights in the order of fragments and one stream of them: Marlin (Frantar et al. 2024). Codes
//    as numbers without a leading one, so that scaling is the whole conversion: ours.
// 9. A barrier of the block for each band, scales asked for only where a group begins, and one
//    chain of sums for few tokens: steps of Llama-3-8B as int4 on an H200 took 2.50 ms at 1x128 and
//    2.93 at 8x128, instead of 2.30 and 2.57.
#include <algorithm>

#include "cuda/device/device_limits.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/warp_queue.cuh"
#include "cuda/gemm/small_gemm.h"
#include "cuda/rows/coded_tile.cuh"

namespace inferd::cuda {
namespace {

constexpr int kMostWarps = 16, kHeldTiles = 2;

struct CodedSmallArgs {
  GemmArgs gemm;
  CodedLayout layout;
  int32_t warps, share_log2;  // share: threads that add up one sum
};

template <int kBits, bool kHeld>
constexpr int kStages = kHeld        ? 4
                        : kBits == 4 ? 3
                                     : 2;

// Floats of the sums, one copy.
__host__ __device__ constexpr int sums_of(int warps, int tokens, int rows) {
  return warps * tokens * (rows + 1);
}

// Of a copy of the sums, which one half of the warps, its readers, add up: all have written it; the
// readers have added it up, told to the others; the readers among themselves.
constexpr int sums_written(int copy) { return 1 + copy; }
constexpr int sums_added(int copy) { return 3 + copy; }
constexpr int sums_free(int copy) { return 5 + copy; }

// Token tiles are of 8.
template <typename T, int kBits, bool kMinima, int kTokenTiles, bool kHeld>
__global__ void __launch_bounds__(kMostWarps* kWarp, 1)
    coded_small_kernel(const __grid_constant__ CodedSmallArgs args) {
  constexpr int kRowTiles = kHeld ? 1 : 2, kRows = 16 * kRowTiles, kTokens = 8 * kTokenTiles;
  constexpr int kPitch = kRows + 1, kCopies = kHeld ? 2 : 1;
  constexpr int kSteps = kStepsOf16Bytes<kBits>, kDeep = kStages<kBits, kHeld>;
  const GemmArgs& p = args.gemm;
  const CodedLayout& layout = args.layout;
  extern __shared__ uint8_t shared[];
  let_next_start();
  const int warps = args.warps;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int tile_bytes = layout.tile_bytes(), stage_bytes = kRowTiles * tile_bytes;
  const int across = layout.across(), down = layout.down();
  const int bands = (down + kRowTiles - 1) / kRowTiles;
  const int pieces = (across + warps - 1) / warps;  // a warp and band
  uint8_t* const queue = shared + warp * kDeep * stage_bytes;
  float* const sums = reinterpret_cast<float*>(shared + warps * kDeep * stage_bytes);
  float* const squares = sums + kCopies * sums_of(warps, kTokens, kRows);  // [warp][token]
  const auto* tiles = static_cast<const uint8_t*>(p.w.codes);
  const T* x = static_cast<const T*>(p.x);

  // The tile that is fetched next, and where it goes; counters instead of products.
  const int64_t band_step = int64_t{across} * tile_bytes * kRowTiles;
  const uint8_t* fetch_from = tiles + blockIdx.x * band_step + warp * tile_bytes + lane * 16;
  const uint32_t queue_at = shared_address(queue) + lane * 16;
  uint32_t fetch_to = queue_at;
  int fetch_band = blockIdx.x, fetch_piece = 0, fetch_stage = 0;
  const int piece_step = warps * tile_bytes;
  const int64_t turn_step = gridDim.x * band_step - int64_t{pieces} * piece_step;
  constexpr int kCodeBytes = 256 * kBits;
  const bool has_scales = kCodeBytes + lane * 16 < tile_bytes;
  const auto fetch = [&] {
    if (fetch_band < bands) {
      if (fetch_piece * warps + warp < across) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          if (kRowTiles > 1 && fetch_band * kRowTiles + r >= down) continue;
          const uint8_t* from = fetch_from + r * across * tile_bytes;
          const uint32_t to = fetch_to + r * tile_bytes;
#pragma unroll
          for (int at = 0; at < kCodeBytes; at += 512) stream16(to + at, from + at);
          if (has_scales) stream16(to + kCodeBytes, from + kCodeBytes);
        }
      }
      fetch_from += piece_step;
      if (++fetch_piece == pieces) {
        fetch_piece = 0;
        fetch_band += gridDim.x;
        fetch_from += turn_step;
      }
    }
    copy_commit();  // empty groups keep the count of groups in step
    fetch_to += stage_bytes;
    if (++fetch_stage == kDeep) {
      fetch_stage = 0;
      fetch_to = queue_at;
    }
  };
#pragma unroll
  for (int i = 0; i < kDeep; ++i) fetch();
  wait_for_previous();

  // Of a tile of columns: 32 columns each, of which a lane first has 8 t .. 8 t + 7 of token g, and
  // in the order of products b0, b1 of two steps.
  using Tokens = uint4[kTokenTiles][4];
  Tokens tokens[2];
  const auto load_tokens = [&](int piece, Tokens& to) {
    const int at = (piece * warps + warp) * kTileColumns128 + t * 8;
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[j][i] = uint4{0, 0, 0, 0};
        if (j * 8 + g < p.m && at + i * 32 < p.k) {
          to[j][i] = *reinterpret_cast<const uint4*>(x + (j * 8 + g) * p.x_stride + at + i * 32);
        }
      }
    }
  };
  const auto order_tokens = [&](Tokens& of) {
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t w[4] = {of[j][i].x, of[j][i].y, of[j][i].z, of[j][i].w};
        transpose_quad(w, t);
        of[j][i] = {w[0], w[1], w[2], w[3]};
      }
    }
  };
  if constexpr (kHeld) {
#pragma unroll
    for (int piece = 0; piece < kHeldTiles; ++piece) load_tokens(piece, tokens[piece]);
    if (p.norm_x) {
      float square[kTokenTiles] = {};
#pragma unroll
      for (int piece = 0; piece < kHeldTiles; ++piece) {
        const int at = (piece * warps + warp) * kTileColumns128 + t * 8;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float factor[8];
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            const bool has = p.norm_weight != nullptr && at + i * 32 < p.k;
            factor[e] = has ? p.norm_weight[at + i * 32 + e] : 1.f;
          }
#pragma unroll
          for (int j = 0; j < kTokenTiles; ++j) {
            uint4& v = tokens[piece][j][i];
            uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float2 pair = unpack2<T>(w[e]);
              square[j] += pair.x * pair.x + pair.y * pair.y;
              if (p.norm_weight != nullptr)
                w[e] = pack2<T>(pair.x * factor[2 * e], pair.y * factor[2 * e + 1]);
            }
            v = {w[0], w[1], w[2], w[3]};
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        square[j] += __shfl_xor_sync(kFullWarp, square[j], 1);
        square[j] += __shfl_xor_sync(kFullWarp, square[j], 2);
        if (t == 0) squares[warp * kTokens + j * 8 + g] = square[j];
      }
    }
#pragma unroll
    for (int piece = 0; piece < kHeldTiles; ++piece) order_tokens(tokens[piece]);
  } else {
    load_tokens(0, tokens[0]);
  }

  // Scales come for two steps at a time, or for one where a group may have 16 columns: a longer
  // group's again, which is cheaper than asking whether they are the same.
  constexpr int kEntry = kMinima ? 64 : 32, kScaleSteps = kBits == 8 && kMinima ? 1 : 2;
  int scale_at[8 / kScaleSteps];
#pragma unroll
  for (int i = 0; i < 8 / kScaleSteps; ++i)
    scale_at[i] = kCodeBytes + g * (kMinima ? 8 : 4) + i * kScaleSteps * 16 / layout.group * kEntry;
  // Products of one step wait for those of the step before, so that few tokens have two sums.
  constexpr int kChains = kTokenTiles == 1 ? 2 : 1;
  // By `threads` threads, whole warps.
  const auto add_up = [&](int band, int copy, int thread, int threads) {
    // `share` neighbours add up a sum; a gate and its factor are `share` apart. A warp's sums are
    // of one token.
    const int gated = p.gated ? 1 : 0, share = 1 << args.share_log2;
    for (int i = thread; i < p.m * kRows << args.share_log2; i += threads) {
      const int part = i & (share - 1), at = (i >> args.share_log2) % kRows;
      const int token = (i >> args.share_log2) / kRows;
      const int up = at & gated, output = at >> gated;
      const int row = p.gated ? output / 8 * 16 + output % 8 + up * 8 : at;
      const int out = band * (kRows >> gated) + output;
      const float* from = sums + (copy * warps * kTokens + token) * kPitch + row;
      float sum = 0.f;
      for (int w = part; w < warps; w += share) sum += from[w * kTokens * kPitch];
      for (int apart = 1; apart < share; apart *= 2) {
        sum += __shfl_xor_sync(kFullWarp, sum, apart);
      }
      sum *= coded_unit<T>;
      if (kHeld && p.norm_x) {
        float square = 0.f;
        for (int w = 0; w < warps; ++w) square += squares[w * kTokens + token];
        sum *= rsqrtf(square / static_cast<float>(p.k) + p.norm_eps);
      }
      const bool f32 = p.out == GemmOut::kF32, inside = out < p.n;
      if (p.bias != nullptr && inside) {
        const int of = up * p.n + out;
        sum += f32 ? static_cast<const float*>(p.bias)[of]
                   : to_float(static_cast<const T*>(p.bias)[of]);
      }
      if (p.gated) {
        const float factor = __shfl_xor_sync(kFullWarp, sum, share);
        sum = silu(sum) * factor;
      }
      if (part == 0 && up == 0 && inside) {
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
  };
  const int half = warps / 2;
  const auto reads = [&](int copy) { return warp / half == copy; };
  const auto add_up_in_turn = [&](int turn) {
    const int copy = turn % 2, band = blockIdx.x + turn * gridDim.x;
    if (!reads(copy)) return;
    warps_sync(sums_written(copy), warps);
    add_up(band, copy, threadIdx.x - copy * half * kWarp, half * kWarp);
    // Where somebody will wait for it: no barrier is left half complete.
    if (band + 2 * static_cast<int>(gridDim.x) < bands) warps_arrive(sums_added(copy), warps);
  };

  int stage = 0, turn = 0;
  for (int band = blockIdx.x; band < bands; band += gridDim.x, ++turn) {
    float acc[kRowTiles][kTokenTiles * kChains][4] = {};
    const auto multiply = [&](int piece, const Tokens& b) {
      copy_wait<kDeep - 1>();
      __syncwarp();
      if (piece * warps + warp < across) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          if (band * kRowTiles + r >= down) continue;
          const uint8_t* tile = queue + stage * stage_bytes + r * tile_bytes;
          CodedScales<T, kBits> scales;
#pragma unroll
          for (int step = 0; step < 8; ++step) {
            if (step % kScaleSteps == 0)
              scales.template load<kMinima>(tile + scale_at[step / kScaleSteps]);
            const uint4 codes =
                *reinterpret_cast<const uint4*>(tile + step / kSteps * 512 + lane * 16);
            uint32_t a[4];
            unpack_step<T, kBits>(codes, step % kSteps, scales, a);
#pragma unroll
            for (int j = 0; j < kTokenTiles; ++j) {
              const uint4& v = b[j][step / 2];
              mma16816<T>(acc[r][j * kChains + step % kChains], a[0], a[1], a[2], a[3],
                          step % 2 == 0 ? v.x : v.z, step % 2 == 0 ? v.y : v.w);
            }
          }
        }
      }
      __syncwarp();
      fetch();  // into the stage just read
      stage = stage + 1 == kDeep ? 0 : stage + 1;
    };
    if constexpr (kHeld) {
#pragma unroll
      for (int piece = 0; piece < kHeldTiles; ++piece) {
        if (piece < pieces) multiply(piece, tokens[piece]);
      }
    } else {
      for (int piece = 0; piece < pieces; ++piece) {
        // That of the next piece is on its way while this one is multiplied.
        load_tokens(piece + 1 < pieces ? piece + 1 : 0, tokens[1]);
        order_tokens(tokens[0]);
        multiply(piece, tokens[0]);
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) tokens[0][j][i] = tokens[1][j][i];
        }
      }
    }
    if constexpr (kHeld) {
      const int copy = turn % 2;
      if (turn >= 2 && reads(copy)) warps_sync(sums_free(copy), half);
      if (turn >= 2 && !reads(copy)) warps_sync(sums_added(copy), warps);
    }
    // Rows 16 r + g (0, 1) and 8 more (2, 3) of w, tokens 8 j + 2 t and the next.
    float* mine = sums + (turn % kCopies * warps + warp) * kTokens * kPitch;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float sum = acc[r][j * kChains][e];
          if constexpr (kChains == 2) sum += acc[r][j * kChains + 1][e];
          mine[(j * 8 + t * 2 + (e & 1)) * kPitch + r * 16 + g + (e >> 1) * 8] = sum;
        }
      }
    }
    if constexpr (kHeld) {
      // The sums of a band are added up a band later, when no warp is waited for any more, by
      // either half of the warps in turn.
      if (!reads(turn % 2)) warps_arrive(sums_written(turn % 2), warps);
      if (turn > 0) add_up_in_turn(turn - 1);
    } else {
      __syncthreads();
      add_up(band, 0, threadIdx.x, warps * kWarp);
      __syncthreads();
    }
  }
  if constexpr (kHeld) {
    if (turn > 0) add_up_in_turn(turn - 1);
  }
}

CodedLayout layout_of(const GemmArgs& p) {
  return coded_layout(p.w.format, p.gated ? 2 * p.n : p.n, p.k, p.gated);
}

int warps_of(const DeviceLimits& device) {
  return device.most_shared < (128 << 10) ? 8 : kMostWarps;
}

bool holds_x(const CodedLayout& layout, int warps) { return layout.across() <= kHeldTiles * warps; }

template <typename T, int kBits, bool kMinima, int kTokenTiles, bool kHeld>
cudaError_t launch_tiles(CodedSmallArgs args, const DeviceLimits& device, const Launch& launch) {
  constexpr int kRowTiles = kHeld ? 1 : 2, kRows = 16 * kRowTiles, kTokens = 8 * kTokenTiles;
  const int queues = args.warps * kStages<kBits, kHeld> * kRowTiles * args.layout.tile_bytes();
  const int rest = static_cast<int>(sizeof(float)) *
                   ((kHeld ? 2 : 1) * sums_of(args.warps, kTokens, kRows) + args.warps * kTokens);
  int share = kRows == 16 ? 1 : 0;  // its logarithm: the sums of a warp are of one token
  while ((2 << share) <= args.warps &&
         args.gemm.m * kRows << (share + 1) <= args.warps * kWarp / (kHeld ? 2 : 1))
    ++share;
  args.share_log2 = share;
  const int bands = (args.layout.down() + kRowTiles - 1) / kRowTiles;
  return launch_kernel(
      coded_small_kernel<T, kBits, kMinima, kTokenTiles, kHeld>,
      {.grid = dim3(static_cast<unsigned>(std::min(bands, device.multiprocessors))),
       .threads = args.warps * kWarp,
       .shared_bytes = static_cast<size_t>(queues + rest)},
      launch, args);
}

template <typename T, int kBits, bool kMinima>
cudaError_t launch_bits(const CodedSmallArgs& args, const DeviceLimits& device,
                        const Launch& launch) {
  const bool held = holds_x(args.layout, args.warps);
  if (args.gemm.norm_x && !held) return cudaErrorInvalidValue;
  if (args.gemm.m <= 8) {
    return held ? launch_tiles<T, kBits, kMinima, 1, true>(args, device, launch)
                : launch_tiles<T, kBits, kMinima, 1, false>(args, device, launch);
  }
  return held ? launch_tiles<T, kBits, kMinima, 2, true>(args, device, launch)
              : launch_tiles<T, kBits, kMinima, 2, false>(args, device, launch);
}

template <typename T>
cudaError_t launch_type(const CodedSmallArgs& args, const DeviceLimits& device,
                        const Launch& launch) {
  if (args.layout.bits == 4) {
    return args.layout.minima ? launch_bits<T, 4, true>(args, device, launch)
                              : launch_bits<T, 4, false>(args, device, launch);
  }
  return args.layout.minima ? launch_bits<T, 8, true>(args, device, launch)
                            : launch_bits<T, 8, false>(args, device, launch);
}

}  // namespace

bool coded_small_takes(const GemmArgs& p) {
  if (!in_plain_tiles(p.w.format) || p.m < 1 || p.n < 1 || p.k < 8 || p.k % 8 != 0 ||
      p.x_stride % 8 != 0 || (p.gated && (p.add_to_y || p.out == GemmOut::kF32))) {
    return false;
  }
  if (!p.norm_x) return true;
  DeviceLimits device;
  return p.m <= kCodedSmallRows && ask_limits(device) == cudaSuccess &&
         holds_x(layout_of(p), warps_of(device));
}

cudaError_t coded_small_gemm(const GemmArgs& p, const Launch& launch) {
  if (!coded_small_takes(p)) return cudaErrorInvalidValue;
  DeviceLimits device;
  cudaError_t error = ask_limits(device);
  for (int32_t first = 0; first < p.m && error == cudaSuccess; first += kCodedSmallRows) {
    GemmArgs part = p;
    part.m = std::min(kCodedSmallRows, p.m - first);
    part.x = static_cast<const char*>(p.x) + first * p.x_stride * 2;
    part.y = static_cast<char*>(p.y) + first * p.y_stride * (p.out == GemmOut::kF32 ? 4 : 2);
    const CodedSmallArgs args = {
        .gemm = part, .layout = layout_of(p), .warps = warps_of(device), .share_log2 = 0};
    error = p.type == Half::kF16 ? launch_type<__half>(args, device, launch)
                                 : launch_type<__nv_bfloat16>(args, device, launch);
  }
  return error;
}

}  // namespace inferd::cuda
