// 1. y = x w^T (+ bias) (+ y) for m <= 16 rows; gated: y = silu(x w_gate^T) * (x w_up^T). Either
//    also of x divided by the root mean square of its rows.
// 2. x [m, k] and w [n, k] f16 or bf16, w packed, 16-byte aligned rows; y [m, n] of the same type
//    or f32; bias [n] of y's type.
// 3. One block a multiprocessor takes tiles of 16 rows of w in turn. Its 16 warps cut k into pieces
//    of 4 KB of weights, dealt round robin; a lane fetches exactly the bytes that it multiplies:
//
//        w row g     | lane t: 8 values | t+1 | t+2 | t+3 | next 32 columns ...    g = lane / 4
//        w row g + 8 | lane t: 8 values | ...                                      t = lane % 4
//
//    so the ring in shared memory is a queue of each lane alone and needs no barrier. The product
//    is mma.m16n8k16 with w as A and x as B; both sides take the columns in the order that 16-byte
//    loads give, which a sum over k does not notice. The queues run on across tiles: while a block
//    adds up its warps' sums for one tile, the weights of the next are on their way. They are full
//    before the kernel waits for the one ahead of it.
//    A warp has the same columns in every tile: up to k = 4096 it keeps x of them in registers, so
//    that a block reads x once. Above, x comes through L1 for every tile, which then has 32 rows
//    for m > 8.
//    Gated, 8 of a tile's 16 rows are gate rows and 8 the up rows of the same outputs.
//    The rows' squares are summed as products of x with itself, in a block's first tile, and the
//    sums of every tile multiplied by 1 / rms: x is what it was before the norm.
// 4. Shared memory 128 KB ring, or 192 KB where a block takes many tiles, and 17 KB sums (35 KB for
//    m > 8); 8 warps and half of it where a block may have only 99 KB. Up to 128 registers. x comes
//    through what is left of L1.
// 5. f32 accumulation over k within a warp, then over warps in a fixed order; one rounding at the
//    end. Relative error 2^-9 (bf16), 2^-11 (f16) of the exact product of the rounded inputs.
// 6. From sm_80; k a multiple of 8, else cudaErrorInvalidValue.
// 7. Bytes 2 * n * k: bound by memory. Llama-3-8B on an H200 with early starts, weights in turn, us
//    (of the read ceiling, 4.50 TB/s; beside it cuBLASLt's best of 8 for m = 1):
//
//      m     qkv               o                gate_up           down             head
//      1     12.4 90 % (15.4)  8.6 87 % (12.5)  54.6 95 % (55.3)  28.4 92 % (31)   241 97 % (242)
//      8     13.3 84 %         9.2 81 %         55.6 94 %         30.3 86 %        245 95 %
//      16    14.5 77 %         10.5 71 %        58.1 90 %         31.6 82 %        251 93 %
//
//    With a small kernel ahead, norm_x and (the norm apart), m = 1, 8, 16: qkv 13.6 (14.9), 14.2
//    (16.3), 15.8 (17.4), gate_up with silu 56.2 (57.5), 57.2 (59.3), 60.9 (63.0). What m = 16 adds
//    is x, which every block reads: 17 MB from L2. Steps of 16x1024, all products by this kernel,
//    4.91 to 4.98 ms; by cuBLASLt and the streaming GEMM 5.20 to 5.32.
// 8. Weights as the streamed operand of tensor core tiles: Marlin (Frantar et al. 2024).
// 9. A block a tile with loads to registers: the memory pipe drains at each tile's end (o 11.6 us,
//    gate_up 58.8). 8 warps with 6 stages: less L1 for x, o 10.6, head at m = 8 309 us instead of
//    253. let_next_start() after the wait: a decode layer of four linears and four small kernels
//    122.6 us instead of 114.5. x through L1 for every tile, m = 16: qkv 16.3, o 11.1, gate_up
//    63.4, and 76 in tiles of 16 rows. 192 KB for all: o at m = 16 11.5, qkv 15.3. One thread for
//    each sum over the warps: 1 % more in gate_up. Loads in the order of 128-byte lines, or without
//    the L2 policy: no difference.
#include <cstring>

#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/gemm/small_gemm.h"

namespace inferd::cuda {
namespace {

constexpr int kChunks = 8;  // 16-byte chunks of a lane and piece

// Tiles of 16 rows of w and of 8 tokens that a warp multiplies at a time.
template <int kRowTiles, int kTokenTiles>
struct Tile {
  static constexpr int kRows = 16 * kRowTiles, kTokens = 8 * kTokenTiles;
  static constexpr int kRowGroups = 2 * kRowTiles;  // of 8 rows; chunks of one column step
  static constexpr int kSteps = kChunks / kRowGroups;
  static constexpr int kPiece = 32 * kSteps;              // columns
  static constexpr int kPitch = kRows + 1;                // of the sums
  static constexpr int kCopies = kRowTiles == 1 ? 2 : 1;  // of the sums: two save a barrier

  // The queues, the sums, the squares.
  static constexpr size_t shared_bytes(int warps, int stages) {
    return static_cast<size_t>(stages) * warps * kWarp * kChunks * 16 +
           static_cast<size_t>(warps) * kTokens * (kCopies * kPitch + 1) * sizeof(float);
  }
};

constexpr int kMostWarps = 16;
// Pieces of x that a warp of kMostWarps keeps: 64 registers a lane for 16 rows.
constexpr int kHeldPieces = 2, kHeldColumns = kHeldPieces * kMostWarps * Tile<1, 1>::kPiece;
static_assert(kHeldColumns == kSmallGemmHeldColumns);
// Tiles a block from which a third stage is worth the L1 that it takes from the first reading of x.
constexpr int kDeepTiles = 4;

// Weights are read once: they leave L2 first.
__device__ uint64_t streaming_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ void stream16(void* shared, const void* global, bool keep, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::256B [%0], [%1], 16, %2, %3;" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(keep ? 16 : 0), "l"(policy)
               : "memory");
}
__device__ uint4 load_x(const void* p) {
  uint4 v;
  asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

// kHeld: pieces of x that a warp has, all kept in registers; 0: fetched again for each tile.
template <typename T, typename Y, int kWarps, int kStages, int kRowTiles, int kTokenTiles,
          int kHeld, bool kGated>
__global__ void __launch_bounds__(kWarps* kWarp, 1) small_gemm_kernel(const GemmArgs p) {
  using S = Tile<kRowTiles, kTokenTiles>;
  constexpr int kThreads = kWarps * kWarp;
  extern __shared__ uint4 shared[];
  let_next_start();
  uint4* queue = shared + threadIdx.x;  // chunk c of stage s at (s * kChunks + c) * kThreads
  float* sums = reinterpret_cast<float*>(shared + kStages * kChunks * kThreads);
  float* squares = sums + S::kCopies * kWarps * S::kTokens * S::kPitch;  // [warp][token]
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  constexpr int kOutputs = kGated ? S::kRows / 2 : S::kRows;  // of a tile
  constexpr int kSums = S::kTokens * S::kRows;
  constexpr int kShare = kThreads > kSums ? kThreads / kSums : 1;  // neighbours add up a sum
  constexpr int kTurns = kSums > kThreads ? kSums / kThreads : 1;  // of a thread
  static_assert(S::kRows * kShare % kWarp == 0 && kSums * kShare == kTurns * kThreads);
  const int tiles = (p.n + kOutputs - 1) / kOutputs;
  const int pieces = (p.k + kWarps * S::kPiece - 1) / (kWarps * S::kPiece);  // a warp and tile
  const T* weights = static_cast<const T*>(p.w.codes);
  const T* x = static_cast<const T*>(p.x);
  const uint64_t policy = streaming_policy();

  int fetch_tile = blockIdx.x, fetch_piece = 0, fetch_stage = 0;
  const auto fetch = [&] {
    if (fetch_tile < tiles) {
      const int at = (fetch_piece * kWarps + warp) * S::kPiece + t * 8;
      uint4* to = queue + fetch_stage * kChunks * kThreads;
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
#pragma unroll
        for (int r = 0; r < S::kRowGroups; ++r) {
          const int out = fetch_tile * kOutputs + (kGated ? r / 2 : r) * 8 + g;
          const int row = kGated && r % 2 == 1 ? p.n + out : out, column = at + step * 32;
          const bool inside = out < p.n && column < p.k;
          stream16(to + (step * S::kRowGroups + r) * kThreads,
                   inside ? weights + static_cast<int64_t>(row) * p.k + column : weights, inside,
                   policy);
        }
      }
      if (++fetch_piece == pieces) {
        fetch_piece = 0;
        fetch_tile += gridDim.x;
      }
    }
    copy_commit();  // empty groups keep the count of groups in step
    fetch_stage = fetch_stage + 1 == kStages ? 0 : fetch_stage + 1;
  };
  for (int i = 0; i < kStages; ++i) fetch();
  wait_for_previous();

  // Without room for all of x, that of the next piece is on its way while this one is multiplied.
  using Tokens = uint4[kTokenTiles][S::kSteps];
  Tokens tokens[kHeld > 0 ? kHeld : 2];
  const auto load_tokens = [&](int piece, Tokens& to) {
    const int at = (piece * kWarps + warp) * S::kPiece + t * 8;
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
        to[j][step] = uint4{0, 0, 0, 0};
        if (j * 8 + g < p.m && at + step * 32 < p.k) {
          to[j][step] = load_x(x + (j * 8 + g) * p.x_stride + at + step * 32);
        }
      }
    }
  };
#pragma unroll
  for (int piece = 0; piece < (kHeld > 0 ? kHeld : 1); ++piece) load_tokens(piece, tokens[piece]);

  // norm_x: x x^T of this warp's columns, whose diagonal is the sums of squares; tokens 0 to 7 are
  // rows g, the last 8 rows g + 8. In the first tile.
  float gram[kTokenTiles][4] = {};
  float factors[kTurns];  // 1 / rms of the token of each of this thread's sums
  int stage = 0, copy = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float acc[kRowTiles][kTokenTiles][4] = {};
    const bool measures = p.norm_x && tile == static_cast<int>(blockIdx.x);
    const auto multiply = [&](const Tokens& b) {
      copy_wait<kStages - 1>();
      const uint4* from = queue + stage * kChunks * kThreads;
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          const uint4 a = from[(step * S::kRowGroups + 2 * i) * kThreads];
          const uint4 a8 = from[(step * S::kRowGroups + 2 * i + 1) * kThreads];
#pragma unroll
          for (int j = 0; j < kTokenTiles; ++j) {
            mma16816<T>(acc[i][j], a.x, a8.x, a.y, a8.y, b[j][step].x, b[j][step].y);
            mma16816<T>(acc[i][j], a.z, a8.z, a.w, a8.w, b[j][step].z, b[j][step].w);
          }
        }
        if (measures) {
          const uint4 &low = b[0][step], &high = b[kTokenTiles - 1][step];
#pragma unroll
          for (int j = 0; j < kTokenTiles; ++j) {
            mma16816<T>(gram[j], low.x, high.x, low.y, high.y, b[j][step].x, b[j][step].y);
            mma16816<T>(gram[j], low.z, high.z, low.w, high.w, b[j][step].z, b[j][step].w);
          }
        }
      }
      fetch();  // into the stage just read: the products above have its values
      stage = stage + 1 == kStages ? 0 : stage + 1;
    };
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int piece = 0; piece < kHeld; ++piece) {
        if (piece < pieces) multiply(tokens[piece]);
      }
    } else {
      for (int piece = 0; piece < pieces; ++piece) {
        load_tokens(piece + 1 < pieces ? piece + 1 : 0, tokens[1]);
        multiply(tokens[0]);
        memcpy(tokens[0], tokens[1], sizeof(Tokens));
      }
    }
    // acc[i][j]: rows i * 16 + g (0, 1) and 8 more (2, 3) of w, tokens j * 8 + 2t and the next.
    float* mine = sums + (copy * kWarps + warp) * S::kTokens * S::kPitch;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          mine[(j * 8 + t * 2 + (e & 1)) * S::kPitch + i * 16 + g + (e >> 1) * 8] = acc[i][j][e];
        }
      }
    }
    if (measures && t == g / 2) {
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        squares[warp * S::kTokens + j * 8 + g] = g % 2 == 0 ? gram[j][j * 2] : gram[j][j * 2 + 1];
      }
    }
    __syncthreads();  // with two copies the other one is free: all have passed its sums
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = static_cast<int>(threadIdx.x) + turn * kThreads;
      const int part = i % kShare, token = i / kShare / S::kRows, at = i / kShare % S::kRows;
      const int up = kGated ? at % 2 : 0, output = kGated ? at / 2 : at;
      const int row = kGated ? output / 8 * 16 + output % 8 + up * 8 : at;
      const int out = tile * kOutputs + output;
      if (token >= p.m) continue;  // the same for a whole warp
      if (measures) {
        float sum = 0.f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += squares[w * S::kTokens + token];
        factors[turn] = rsqrtf(sum / static_cast<float>(p.k) + p.norm_eps);
      }
      const float* from = sums + (copy * kWarps * S::kTokens + token) * S::kPitch + row;
      float sum = 0.f;
#pragma unroll
      for (int w = 0; w < kWarps; w += kShare) sum += from[(w + part) * S::kTokens * S::kPitch];
#pragma unroll
      for (int apart = 1; apart < kShare; apart *= 2) {
        sum += __shfl_xor_sync(kFullWarp, sum, apart);
      }
      if (p.norm_x) sum *= factors[turn];
      if (p.bias != nullptr && out < p.n) {
        sum += to_float(static_cast<const Y*>(p.bias)[up * p.n + out]);
      }
      Y* y = static_cast<Y*>(p.y) + token * p.y_stride + out;
      if constexpr (kGated) {
        const float factor = __shfl_xor_sync(kFullWarp, sum, kShare);
        if (part == 0 && up == 0 && out < p.n) *y = from_float<Y>(silu(sum) * factor);
      } else if (part == 0 && out < p.n) {
        if (p.add_to_y) sum += to_float(*y);
        *y = from_float<Y>(sum);
      }
    }
    if constexpr (S::kCopies == 2) {
      copy ^= 1;
    } else {
      __syncthreads();
    }
  }
}

template <typename T, typename Y, int kWarps, int kStages, int kRowTiles, int kTokenTiles,
          int kHeld, bool kGated>
cudaError_t launch_tiles(const GemmArgs& p, int multiprocessors, const Launch& launch) {
  using S = Tile<kRowTiles, kTokenTiles>;
  constexpr int kOutputs = kGated ? S::kRows / 2 : S::kRows;
  const int tiles = (p.n + kOutputs - 1) / kOutputs;
  const int blocks = tiles < multiprocessors ? tiles : multiprocessors;
  return launch_kernel(
      small_gemm_kernel<T, Y, kWarps, kStages, kRowTiles, kTokenTiles, kHeld, kGated>,
      {.grid = dim3(static_cast<unsigned>(blocks)),
       .threads = kWarps * kWarp,
       .shared_bytes = S::shared_bytes(kWarps, kStages)},
      launch, p);
}

struct Device {
  int multiprocessors, most_shared;  // bytes a block may have
};

template <typename T, typename Y, int kWarps, int kTokenTiles, bool kGated>
cudaError_t launch_held(const GemmArgs& p, const Device& device, const Launch& launch) {
  using S = Tile<1, kTokenTiles>;
  const int64_t rows = kGated ? int64_t{2} * p.n : p.n;
  const bool deep = rows >= int64_t{kDeepTiles} * S::kRows * device.multiprocessors &&
                    S::shared_bytes(kWarps, 3) <= static_cast<size_t>(device.most_shared);
  return deep ? launch_tiles<T, Y, kWarps, 3, 1, kTokenTiles, kHeldPieces, kGated>(
                    p, device.multiprocessors, launch)
              : launch_tiles<T, Y, kWarps, 2, 1, kTokenTiles, kHeldPieces, kGated>(
                    p, device.multiprocessors, launch);
}

template <typename T, typename Y, int kWarps, bool kGated>
cudaError_t choose_tile(const GemmArgs& p, const Device& device, const Launch& launch) {
  if constexpr (kWarps == kMostWarps) {
    if (p.k <= kHeldColumns) {
      return p.m <= 8 ? launch_held<T, Y, kWarps, 1, kGated>(p, device, launch)
                      : launch_held<T, Y, kWarps, 2, kGated>(p, device, launch);
    }
  }
  return p.m <= 8
             ? launch_tiles<T, Y, kWarps, 2, 1, 1, 0, kGated>(p, device.multiprocessors, launch)
             : launch_tiles<T, Y, kWarps, 2, 2, 2, 0, kGated>(p, device.multiprocessors, launch);
}

template <typename T, typename Y, int kWarps>
cudaError_t dispatch(const GemmArgs& p, const Device& device, const Launch& launch) {
  if constexpr (std::is_same_v<T, Y>) {
    if (p.gated) return choose_tile<T, Y, kWarps, true>(p, device, launch);
  }
  return choose_tile<T, Y, kWarps, false>(p, device, launch);
}

template <typename T, typename Y>
cudaError_t dispatch(const GemmArgs& p, const Launch& launch) {
  int id = 0;
  Device device = {};
  cudaError_t error = cudaGetDevice(&id);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, id);
  }
  if (error == cudaSuccess) {
    error =
        cudaDeviceGetAttribute(&device.most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, id);
  }
  if (error != cudaSuccess) return error;
  return static_cast<size_t>(device.most_shared) >= Tile<1, 2>::shared_bytes(kMostWarps, 2)
             ? dispatch<T, Y, kMostWarps>(p, device, launch)
             : dispatch<T, Y, 8>(p, device, launch);
}

template <typename T>
cudaError_t dispatch_out(const GemmArgs& p, const Launch& launch) {
  return p.out == GemmOut::kF32 ? dispatch<T, float>(p, launch) : dispatch<T, T>(p, launch);
}

}  // namespace

cudaError_t small_gemm(const GemmArgs& p, const Launch& launch) {
  if (p.m < 1 || p.m > kSmallGemmRows || p.n < 1 || p.k < 8 || p.k % 8 != 0 ||
      p.x_stride % 8 != 0 || ((p.gated || p.norm_x) && (p.add_to_y || p.out == GemmOut::kF32))) {
    return cudaErrorInvalidValue;
  }
  return p.type == Half::kBF16 ? dispatch_out<__nv_bfloat16>(p, launch)
                               : dispatch_out<__half>(p, launch);
}

}  // namespace inferd::cuda
