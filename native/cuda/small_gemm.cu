// 1. y = x w^T (+ bias) (+ y) for m <= 16 rows.
// 2. x [m, k] and w [n, k] f16 or bf16, w packed, 16-byte aligned rows; y [m, n] of the same type
//    or f32; bias [n] of y's type.
// 3. One block a multiprocessor takes tiles of 16 rows of w in turn. Its 8 warps cut k into pieces
//    of 128, dealt round robin; a lane fetches exactly the bytes that it multiplies:
//
//        w row g     | lane t: 8 values | t+1 | t+2 | t+3 | next 32 columns ...    g = lane / 4
//        w row g + 8 | lane t: 8 values | ...                                      t = lane % 4
//
//    so the ring in shared memory is a queue of each lane alone and needs no barrier. The product
//    is mma.m16n8k16 with w as A and x as B; both sides take the columns in the order that 16-byte
//    loads give, which a sum over k does not notice. The queues run on across tiles: while a block
//    adds up its warps' sums for one tile, the weights of the next are on their way.
// 4. Shared memory 96 KB ring (3 pieces of 4 KB a warp; 64 KB where a block may have only 99 KB),
//    9 KB a group of 8 tokens for the sums. Up to 128 registers. x comes through L1.
// 5. f32 accumulation over k within a warp, then over warps in order; one rounding at the end.
//    Relative error 2^-9 (bf16), 2^-11 (f16) of the exact product of the rounded inputs.
// 6. From sm_80; k a multiple of 8, else cudaErrorInvalidValue.
// 7. Bytes 2 * n * k: bound by memory. See test/gpu/gemm_test.cu for rates beside cuBLASLt's.
// 8. Weights as the streamed operand of tensor core tiles: Marlin (Frantar et al. 2024).
// 9. A block a tile with loads to registers: the memory pipe drains at each tile's end (o_proj 4096
//    x 4096 at 67 % of the read ceiling on an H200, gate_up at 87 %).
#include "common.cuh"
#include "launch.cuh"
#include "mma.cuh"
#include "small_gemm.h"

namespace inferd::cuda {
namespace {

constexpr int kTileRows = 16, kPiece = 128;  // columns of a piece
constexpr int kChunks = 8;                   // 16-byte chunks a lane and piece: 4 of each row
constexpr int kPitch = kTileRows + 1;
constexpr int kStages = 2;  // more leave less L1 for x, and are slower

template <int kWarps, int kTokenTiles>
constexpr size_t shared_bytes() {
  return static_cast<size_t>(kStages) * kWarps * kWarp * kChunks * 16 +
         2 * kWarps * kTokenTiles * 8 * kPitch * sizeof(float);
}

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

template <typename T, typename Y, int kWarps, int kTokenTiles>
__global__ void __launch_bounds__(kWarps* kWarp, 1) small_gemm_kernel(const GemmArgs p) {
  constexpr int kThreads = kWarps * kWarp;
  let_next_start();
  extern __shared__ uint4 shared[];
  uint4* queue = shared + threadIdx.x;  // chunk c of stage s at (s * kChunks + c) * kThreads
  float* sums = reinterpret_cast<float*>(shared + kStages * kChunks * kThreads);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int tiles = (p.n + kTileRows - 1) / kTileRows;
  const int pieces = (p.k + kWarps * kPiece - 1) / (kWarps * kPiece);  // of each warp and tile
  const T* weights = static_cast<const T*>(p.w);
  const T* x = static_cast<const T*>(p.x);
  const uint64_t policy = streaming_policy();

  int fetch_tile = blockIdx.x, fetch_piece = 0, fetch_stage = 0;
  const auto fetch = [&] {
    if (fetch_tile < tiles) {
      const int row = fetch_tile * kTileRows + g;
      const int at = (fetch_piece * kWarps + warp) * kPiece + t * 8;
      const bool low = row < p.n, high = row + 8 < p.n;
      const T* from = weights + static_cast<int64_t>(low ? row : 0) * p.k + at;
      const T* from8 = weights + static_cast<int64_t>(high ? row + 8 : 0) * p.k + at;
      uint4* to = queue + fetch_stage * kChunks * kThreads;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
#ifdef INFERD_ORDER_LINES
        const int c = (i & 1) | (i >> 1 & 2), second = i >> 1 & 1;
#else
        const int c = i >> 1, second = i & 1;
#endif
        const bool inside = at + c * 32 < p.k;
        const T* source = (second ? from8 : from) + c * 32;
        stream16(to + (2 * c + second) * kThreads, inside ? source : weights,
                 (second ? high : low) && inside, policy);
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
  uint4 b[kTokenTiles][4], next[kTokenTiles][4];
  const auto load_tokens = [&](int piece, uint4(&to)[kTokenTiles][4]) {
    const int at = (piece * kWarps + warp) * kPiece + t * 8;
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        to[j][c] = uint4{0, 0, 0, 0};
        if (j * 8 + g < p.m && at + c * 32 < p.k) {
          to[j][c] = load_x(x + (j * 8 + g) * p.x_stride + at + c * 32);
        }
      }
    }
  };
  load_tokens(0, b);

  int stage = 0, parity = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, parity ^= 1) {
    float acc[kTokenTiles][4] = {};
    for (int piece = 0; piece < pieces; ++piece) {
      load_tokens(piece + 1 < pieces ? piece + 1 : 0, next);
      copy_wait<kStages - 1>();
      const uint4* from = queue + stage * kChunks * kThreads;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const uint4 a = from[2 * c * kThreads], a8 = from[(2 * c + 1) * kThreads];
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) {
          mma16816<T>(acc[j], a.x, a8.x, a.y, a8.y, b[j][c].x, b[j][c].y);
          mma16816<T>(acc[j], a.z, a8.z, a.w, a8.w, b[j][c].z, b[j][c].w);
        }
      }
      fetch();  // into the stage just read: the products above have its values
      memcpy(b, next, sizeof(b));
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    // acc[j]: rows g (0, 1) and g + 8 (2, 3) of w, tokens j * 8 + 2t and the next.
    float* mine = sums + (parity * kWarps + warp) * kTokenTiles * 8 * kPitch;
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        mine[(j * 8 + t * 2 + (e & 1)) * kPitch + g + (e >> 1) * 8] = acc[j][e];
      }
    }
    __syncthreads();  // the buffer of the other parity is free again: all have passed its sums
    const int token = threadIdx.x / kTileRows, column = threadIdx.x % kTileRows;
    const int out = tile * kTileRows + column;
    if (token < p.m && out < p.n) {
      const float* from = sums + (parity * kWarps * kTokenTiles * 8 + token) * kPitch + column;
      float sum = 0.f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += from[w * kTokenTiles * 8 * kPitch];
      Y* y = static_cast<Y*>(p.y) + token * p.y_stride + out;
      if (p.bias != nullptr) sum += to_float(static_cast<const Y*>(p.bias)[out]);
      if (p.add_to_y) sum += to_float(*y);
      *y = from_float<Y>(sum);
    }
  }
}

template <typename T, typename Y, int kWarps>
cudaError_t dispatch(const GemmArgs& p, int blocks, const Launch& launch) {
  LaunchShape shape = {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kWarps * kWarp};
  if (p.m <= 8) {
    shape.shared_bytes = shared_bytes<kWarps, 1>();
    return launch_kernel(small_gemm_kernel<T, Y, kWarps, 1>, shape, launch, p);
  }
  shape.shared_bytes = shared_bytes<kWarps, 2>();
  return launch_kernel(small_gemm_kernel<T, Y, kWarps, 2>, shape, launch, p);
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
  const int tiles = (p.n + kTileRows - 1) / kTileRows;
  const int blocks = tiles < multiprocessors ? tiles : multiprocessors;
  return static_cast<size_t>(most_shared) >= shared_bytes<16, 2>()
             ? dispatch<T, Y, 16>(p, blocks, launch)
             : dispatch<T, Y, 8>(p, blocks, launch);
}

template <typename T>
cudaError_t dispatch_out(const GemmArgs& p, const Launch& launch) {
  return p.out == GemmOut::kF32 ? dispatch<T, float>(p, launch) : dispatch<T, T>(p, launch);
}

}  // namespace

cudaError_t small_gemm(const GemmArgs& p, const Launch& launch) {
  if (p.m < 1 || p.m > kSmallGemmRows || p.n < 1 || p.k < 8 || p.k % 8 != 0 ||
      p.x_stride % 8 != 0) {
    return cudaErrorInvalidValue;
  }
  return p.type == Half::kBF16 ? dispatch_out<__nv_bfloat16>(p, launch)
                               : dispatch_out<__half>(p, launch);
}

}  // namespace inferd::cuda
