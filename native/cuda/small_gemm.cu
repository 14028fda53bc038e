// 1. y = x w^T (+ bias) (+ y) for m <= 16 rows; gated: y = silu(x w_gate^T) * (x w_up^T). Either
//    also of x divided by the root mean square of its rows.
// 2. x [m, k] and w [n, k] f16 or bf16, w packed, 16-byte aligned rows; y [m, n] of the same type
//    or f32; bias [n] of y's type.
// 3. One block a multiprocessor takes tiles of 16 rows of w in turn (32 for m > 8). Its 16 warps
//    cut k into pieces of 4 KB of weights, dealt round robin; a lane fetches exactly the bytes that
//    it multiplies:
//
//        w row g     | lane t: 8 values | t+1 | t+2 | t+3 | next 32 columns ...    g = lane / 4
//        w row g + 8 | lane t: 8 values | ...                                      t = lane % 4
//
//    so the ring in shared memory is a queue of each lane alone and needs no barrier. The product
//    is mma.m16n8k16 with w as A and x as B; both sides take the columns in the order that 16-byte
//    loads give, which a sum over k does not notice. The queues run on across tiles: while a block
//    adds up its warps' sums for one tile, the weights of the next are on their way. They are full
//    before the kernel waits for the one ahead of it.
//    Gated, 8 of a tile's 16 rows are gate rows and 8 the up rows of the same outputs.
//    The rows' squares are summed as products of x with itself, in a block's first tile, and the
//    sums of every tile multiplied by 1 / rms: x is what it was before the norm.
// 4. Shared memory 128 KB ring and 17 KB sums (34 KB for m > 8); 8 warps and half of it where a
//    block may have only 99 KB. Up to 128 registers. x comes through what is left of L1.
// 5. f32 accumulation over k within a warp, then over warps in order; one rounding at the end.
//    Relative error 2^-9 (bf16), 2^-11 (f16) of the exact product of the rounded inputs.
// 6. From sm_80; k a multiple of 8, else cudaErrorInvalidValue.
// 7. Bytes 2 * n * k: bound by memory. Llama-3-8B on an H200 with early starts, m = 1, of the read
//    ceiling (cuBLASLt's best of 8 beside it): qkv 12.6 us 91 % (15.4), o 8.6 us 89 % (12.5),
//    gate_up 56.2 us 95 % (55.3 to 61), down 28.6 us 94 % (31), head 250 us 96 % (242).
//    With a small kernel ahead, norm_x and (the norm apart), m = 1, 8, 16: qkv 13.7 (15.0), 14.2
//    (15.5), 18.1 (20.4), gate_up with silu 59.1 (60.1), 60.1 (61.1), 64.0 (66.3).
// 8. Weights as the streamed operand of tensor core tiles: Marlin (Frantar et al. 2024).
// 9. A block a tile with loads to registers: the memory pipe drains at each tile's end (o 11.6 us,
//    gate_up 58.8). 8 warps with 6 stages: less L1 for x, o 10.6, head at m = 8 309 us instead of
//    253. let_next_start() after the wait: a decode layer of four linears and four small kernels
//    122.6 us instead of 114.5. Tiles of 16 rows for m = 16: x from L2 as often as weights, gate_up
//    76 us. Loads in the order of 128-byte lines, or without the L2 policy: no difference.
#include <cstring>

#include "common.cuh"
#include "launch.cuh"
#include "mma.cuh"
#include "small_gemm.h"

namespace inferd::cuda {
namespace {

constexpr int kStages = 2;  // more leave less L1 for x
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
  static constexpr size_t shared_bytes(int warps) {
    return static_cast<size_t>(kStages) * warps * kWarp * kChunks * 16 +
           static_cast<size_t>(warps) * kTokens * (kCopies * kPitch + 1) * sizeof(float);
  }
};

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

template <typename T, typename Y, int kWarps, int kRowTiles, int kTokenTiles, bool kGated>
__global__ void __launch_bounds__(kWarps* kWarp, 1) small_gemm_kernel(const GemmArgs p) {
  using S = Tile<kRowTiles, kTokenTiles>;
  constexpr int kThreads = kWarps * kWarp;
  extern __shared__ uint4 shared[];
  let_next_start();
  uint4* queue = shared + threadIdx.x;  // chunk c of stage s at (s * kChunks + c) * kThreads
  float* sums = reinterpret_cast<float*>(shared + kStages * kChunks * kThreads);
  float* squares = sums + S::kCopies * kWarps * S::kTokens * S::kPitch;  // [warp][token]
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  constexpr int kOutputs = kGated ? S::kRows / 2 : S::kRows;                 // of a tile
  constexpr int kTurns = (S::kTokens * kOutputs + kThreads - 1) / kThreads;  // of a thread
  const int tiles = (p.n + kOutputs - 1) / kOutputs;
  const int pieces = (p.k + kWarps * S::kPiece - 1) / (kWarps * S::kPiece);  // a warp and tile
  const T* weights = static_cast<const T*>(p.w);
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

  // x of the next piece is on its way while this one is multiplied.
  uint4 b[kTokenTiles][S::kSteps], next[kTokenTiles][S::kSteps];
  const auto load_tokens = [&](int piece, uint4(&to)[kTokenTiles][S::kSteps]) {
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
  load_tokens(0, b);

  // norm_x: x x^T of this warp's columns, whose diagonal is the sums of squares; tokens 0 to 7 are
  // rows g, the last 8 rows g + 8. In the first tile.
  float gram[kTokenTiles][4] = {};
  float factors[kTurns];  // 1 / rms of the token of each of this thread's outputs
  int stage = 0, copy = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float acc[kRowTiles][kTokenTiles][4] = {};
    const bool measures = p.norm_x && tile == static_cast<int>(blockIdx.x);
    for (int piece = 0; piece < pieces; ++piece) {
      load_tokens(piece + 1 < pieces ? piece + 1 : 0, next);
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
      memcpy(b, next, sizeof(b));
      stage = stage + 1 == kStages ? 0 : stage + 1;
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
      const int i = threadIdx.x + turn * kThreads;
      const int token = i / kOutputs, at = i % kOutputs, out = tile * kOutputs + at;
      if (token >= p.m) continue;
      if (measures) {
        float sum = 0.f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += squares[w * S::kTokens + token];
        factors[turn] = rsqrtf(sum / static_cast<float>(p.k) + p.norm_eps);
      }
      if (out >= p.n) continue;
      const auto total = [&](int row, int output) {
        const float* from = sums + (copy * kWarps * S::kTokens + token) * S::kPitch + row;
        float sum = 0.f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += from[w * S::kTokens * S::kPitch];
        if (p.norm_x) sum *= factors[turn];
        if (p.bias != nullptr) sum += to_float(static_cast<const Y*>(p.bias)[output]);
        return sum;
      };
      Y* y = static_cast<Y*>(p.y) + token * p.y_stride + out;
      if constexpr (kGated) {
        const int gate_row = at / 8 * 16 + at % 8;
        const float gate = total(gate_row, out), up = total(gate_row + 8, p.n + out);
        *y = from_float<Y>(silu(gate) * up);
      } else {
        float sum = total(at, out);
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

template <typename T, typename Y, int kWarps, int kRowTiles, int kTokenTiles, bool kGated>
cudaError_t launch_tiles(const GemmArgs& p, int multiprocessors, const Launch& launch) {
  using S = Tile<kRowTiles, kTokenTiles>;
  constexpr int kOutputs = kGated ? S::kRows / 2 : S::kRows;
  const int tiles = (p.n + kOutputs - 1) / kOutputs;
  const int blocks = tiles < multiprocessors ? tiles : multiprocessors;
  return launch_kernel(small_gemm_kernel<T, Y, kWarps, kRowTiles, kTokenTiles, kGated>,
                       {.grid = dim3(static_cast<unsigned>(blocks)),
                        .threads = kWarps * kWarp,
                        .shared_bytes = S::shared_bytes(kWarps)},
                       launch, p);
}

template <typename T, typename Y, int kWarps, bool kGated>
cudaError_t choose_tile(const GemmArgs& p, int multiprocessors, const Launch& launch) {
  return p.m <= 8 ? launch_tiles<T, Y, kWarps, 1, 1, kGated>(p, multiprocessors, launch)
                  : launch_tiles<T, Y, kWarps, 2, 2, kGated>(p, multiprocessors, launch);
}

template <typename T, typename Y, int kWarps>
cudaError_t dispatch(const GemmArgs& p, int multiprocessors, const Launch& launch) {
  if constexpr (std::is_same_v<T, Y>) {
    if (p.gated) return choose_tile<T, Y, kWarps, true>(p, multiprocessors, launch);
  }
  return choose_tile<T, Y, kWarps, false>(p, multiprocessors, launch);
}

template <typename T, typename Y>
cudaError_t dispatch(const GemmArgs& p, const Launch& launch) {
  int device = 0, multiprocessors = 0, most_shared = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  return static_cast<size_t>(most_shared) >= Tile<2, 2>::shared_bytes(16)
             ? dispatch<T, Y, 16>(p, multiprocessors, launch)
             : dispatch<T, Y, 8>(p, multiprocessors, launch);
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
