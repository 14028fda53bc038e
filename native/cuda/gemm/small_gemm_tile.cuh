// The kernel of small_gemm.cu and small_gemm_codes.cu, and its launch: see there.
#pragma once
#include <cstring>

#include "cuda/device/device_limits.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/gemm/small_gemm.h"
#include "cuda/rows/codes.cuh"

namespace inferd::cuda {
namespace {

constexpr int kChunks = 8;  // 16-byte chunks of a lane and piece

// What a chunk of weights holds, and how it is multiplied. Weights in the type T of x:
template <typename T>
struct PlainChunks {
  static constexpr int kValues = 8;
  static constexpr bool kScaled = false, kBlocks = false;
};
// 8-bit codes; with kBlocks a scale for each 128 columns, else one for the row.
template <typename T, CodeType kCodeType, bool kInBlocks>
struct CodeChunks {
  static constexpr int kValues = 16;
  static constexpr bool kScaled = true, kBlocks = kInBlocks;
  static constexpr CodeType kCodes = kCodeType;
};
constexpr int kScaleColumns = 128;

// Tiles of 16 rows of w and of 8 tokens that a warp multiplies at a time.
template <int kRowTiles, int kTokenTiles, int kValues = 8>
struct Tile {
  static constexpr int kRows = 16 * kRowTiles, kTokens = 8 * kTokenTiles;
  static constexpr int kRowGroups = 2 * kRowTiles;  // of 8 rows; chunks of one column step
  static constexpr int kSteps = kChunks / kRowGroups;
  static constexpr int kStep = 4 * kValues;               // columns
  static constexpr int kPiece = kStep * kSteps;           // columns
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
constexpr int kHeldColumns = kSmallGemmHeldColumns;
template <typename Chunks>
constexpr int kHeldPieces = kHeldColumns / (kMostWarps * Tile<1, 1, Chunks::kValues>::kPiece);
static_assert(kHeldPieces<PlainChunks<__half>> == 2);
// Tiles a block from which a third stage is worth the L1 that it takes from the first reading of x.
constexpr int kDeepTiles = 4;

// Weights are read once: they leave L2 first.
__device__ uint64_t streaming_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
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

// Multiplies 8 values by weights, and returns the sum of the squares that they had.
template <typename T>
__device__ float weigh8(uint4& x, const float4& low, const float4& high) {
  float sum = 0.f;
  const auto weigh = [&](uint32_t& pair, float first, float second) {
    const float2 v = unpack2<T>(pair);
    sum = fmaf(v.x, v.x, fmaf(v.y, v.y, sum));
    pair = pack2<T>(v.x * first, v.y * second);
  };
  weigh(x.x, low.x, low.y);
  weigh(x.y, low.z, low.w);
  weigh(x.z, high.x, high.y);
  weigh(x.w, high.z, high.w);
  return sum;
}
// x as the product of pairs of codes takes it.
__device__ void order_pairs(uint4& v) {
  v = {even_pair(v.x, v.y), odd_pair(v.x, v.y), even_pair(v.z, v.w), odd_pair(v.z, v.w)};
}

// kHeld: pieces of x that a warp has, all kept in registers; 0: fetched again for each tile.
template <typename T, typename Chunks, typename Y, int kWarps, int kStages, int kRowTiles,
          int kTokenTiles, int kHeld, bool kGated>
__global__ void __launch_bounds__(kWarps* kWarp, 1) small_gemm_kernel(const GemmArgs p) {
  using S = Tile<kRowTiles, kTokenTiles, Chunks::kValues>;
  constexpr int kVectors = Chunks::kValues / 8;  // of x for a chunk
  constexpr int kWordValues = Chunks::kValues / 8;
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
  const T* weights = static_cast<const T*>(p.w.codes);  // of codes words of two
  const float* scales = static_cast<const float*>(p.w.scales);
  const int across = (p.k + kScaleColumns - 1) / kScaleColumns;  // scales of a row of blocks
  const T* x = static_cast<const T*>(p.x);
  const uint64_t policy = streaming_policy();

  int fetch_tile = blockIdx.x, fetch_piece = 0, fetch_stage = 0;
  const auto fetch = [&] {
    if (fetch_tile < tiles) {
      const int at = (fetch_piece * kWarps + warp) * S::kPiece + t * Chunks::kValues;
      uint4* to = queue + fetch_stage * kChunks * kThreads;
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
#pragma unroll
        for (int r = 0; r < S::kRowGroups; ++r) {
          const int out = fetch_tile * kOutputs + (kGated ? r / 2 : r) * 8 + g;
          const int row = kGated && r % 2 == 1 ? p.n + out : out, column = at + step * S::kStep;
          const bool inside = out < p.n && column < p.k;
          const int64_t word =
              static_cast<int64_t>(row) * (p.k / kWordValues) + column / kWordValues;
          stream16(to + (step * S::kRowGroups + r) * kThreads, inside ? weights + word : weights,
                   inside, policy);
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
  // Of codes rolled: unrolled, ptxas 13.0 made copies that an H200 refused as illegal instructions.
#pragma unroll(Chunks::kScaled ? 1 : kStages)
  for (int i = 0; i < kStages; ++i) fetch();
  wait_for_previous();

  // Without room for all of x, that of the next piece is on its way while this one is multiplied.
  using Tokens = uint4[kTokenTiles][S::kSteps][kVectors];
  Tokens tokens[kHeld > 0 ? kHeld : 2];
  float own_squares[kTokenTiles] = {};  // of x that norm_weight multiplies
  const auto load_tokens = [&](int piece, Tokens& to, bool counts) {
    const int at = (piece * kWarps + warp) * S::kPiece + t * Chunks::kValues;
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          to[j][step][v] = uint4{0, 0, 0, 0};
          if (j * 8 + g < p.m && at + step * S::kStep < p.k) {
            to[j][step][v] = load_x(x + (j * 8 + g) * p.x_stride + at + step * S::kStep + v * 8);
          }
        }
      }
    }
    if constexpr (Chunks::kScaled) {
      if (p.norm_weight != nullptr) {
#pragma unroll
        for (int step = 0; step < S::kSteps; ++step) {
          if (at + step * S::kStep >= p.k) continue;
#pragma unroll
          for (int v = 0; v < kVectors; ++v) {
            const float4* from =
                reinterpret_cast<const float4*>(p.norm_weight + at + step * S::kStep + v * 8);
            const float4 low = from[0], high = from[1];
#pragma unroll
            for (int j = 0; j < kTokenTiles; ++j) {
              const float sum = weigh8<T>(to[j][step][v], low, high);
              own_squares[j] += counts ? sum : 0.f;
            }
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
        for (int step = 0; step < S::kSteps; ++step) {
#pragma unroll
          for (int v = 0; v < kVectors; ++v) order_pairs(to[j][step][v]);
        }
      }
    }
  };
#pragma unroll
  for (int piece = 0; piece < (kHeld > 0 ? kHeld : 1); ++piece)
    load_tokens(piece, tokens[piece], true);

  // norm_x: x x^T of this warp's columns, whose diagonal is the sums of squares; tokens 0 to 7 are
  // rows g, the last 8 rows g + 8. In the first tile.
  // With more than 8 tokens they are summed behind the products of a piece, so that no branch
  // stands among those: a step of 16 rows of Llama-3-8B's shape takes 1.5 % less on an H100 for it.
  // With fewer they are summed among them: a step of 1 row would take 0.6 % more otherwise.
  constexpr bool kMeasuresApart = !Chunks::kScaled && kTokenTiles > 1;
  float gram[kTokenTiles][4] = {};
  float factors[kTurns];  // 1 / rms of the token of each of this thread's sums
  int stage = 0, copy = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float acc[kRowTiles][kTokenTiles][4] = {};
    const bool measures = p.norm_x && tile == static_cast<int>(blockIdx.x);
    // The products of chunks that are `a` of rows g and `a8` of rows g + 8.
    const auto multiply_chunk = [&](float(&c)[4], const uint4& a, const uint4& a8,
                                    const uint4(&b)[kVectors]) {
      if constexpr (!Chunks::kScaled) {
        mma16816<T>(c, a.x, a8.x, a.y, a8.y, b[0].x, b[0].y);
        mma16816<T>(c, a.z, a8.z, a.w, a8.w, b[0].z, b[0].w);
      } else {
        const auto multiply4 = [&](uint32_t word, uint32_t word8, uint32_t x_even, uint32_t x_odd) {
          uint32_t even, odd, even8, odd8;
          widen4<T, Chunks::kCodes>(word, even, odd);
          widen4<T, Chunks::kCodes>(word8, even8, odd8);
          mma16816<T>(c, even, even8, odd, odd8, x_even, x_odd);
        };
        multiply4(a.x, a8.x, b[0].x, b[0].y);
        multiply4(a.y, a8.y, b[0].z, b[0].w);
        multiply4(a.z, a8.z, b[1].x, b[1].y);
        multiply4(a.w, a8.w, b[1].z, b[1].w);
      }
    };
    const auto measure = [&](const Tokens& b, int step) {
      const uint4 &low = b[0][step][0], &high = b[kTokenTiles - 1][step][0];
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        mma16816<T>(gram[j], low.x, high.x, low.y, high.y, b[j][step][0].x, b[j][step][0].y);
        mma16816<T>(gram[j], low.z, high.z, low.w, high.w, b[j][step][0].z, b[j][step][0].w);
      }
    };
    const auto multiply = [&](const Tokens& b, int at_piece) {
      // Scales of rows g and g + 8 of each tile of rows, for each 128 columns of the piece.
      constexpr int kBlockSteps = kScaleColumns / S::kStep;
      constexpr int kParts = Chunks::kBlocks ? S::kPiece / kScaleColumns : 1;
      float block_scales[kParts][kRowTiles][2];
      if constexpr (Chunks::kBlocks) {
        const int block0 = (at_piece * kWarps + warp) * kParts;
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
#pragma unroll
          for (int r = 0; r < S::kRowGroups; ++r) {
            const int out = tile * kOutputs + (kGated ? r / 2 : r) * 8 + g;
            const int row = kGated && r % 2 == 1 ? p.n + out : out;
            const bool inside = out < p.n && block0 + part < across;
            block_scales[part][r / 2][r % 2] =
                inside ? scales[static_cast<int64_t>(row / p.w.format.block_rows) * across +
                                block0 + part]
                       : 0.f;
          }
        }
      }
      copy_wait<kStages - 1>();
      const uint4* from = queue + stage * kChunks * kThreads;
      float block_sums[kRowTiles][kTokenTiles][4];
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          const uint4 a = from[(step * S::kRowGroups + 2 * i) * kThreads];
          const uint4 a8 = from[(step * S::kRowGroups + 2 * i + 1) * kThreads];
#pragma unroll
          for (int j = 0; j < kTokenTiles; ++j) {
            if constexpr (Chunks::kBlocks) {
              if (step % kBlockSteps == 0) {
#pragma unroll
                for (int e = 0; e < 4; ++e) block_sums[i][j][e] = 0.f;
              }
              multiply_chunk(block_sums[i][j], a, a8, b[j][step]);
              if (step % kBlockSteps == kBlockSteps - 1) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                  acc[i][j][e] = fmaf(block_sums[i][j][e],
                                      block_scales[step / kBlockSteps][i][e / 2], acc[i][j][e]);
                }
              }
            } else {
              multiply_chunk(acc[i][j], a, a8, b[j][step]);
            }
          }
        }
        if constexpr (!Chunks::kScaled && !kMeasuresApart) {
          if (measures) measure(b, step);
        }
      }
      if constexpr (kMeasuresApart) {
        if (measures) {
#pragma unroll
          for (int step = 0; step < S::kSteps; ++step) measure(b, step);
        }
      }
      fetch();  // into the stage just read: the products above have its values
      stage = stage + 1 == kStages ? 0 : stage + 1;
    };
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int piece = 0; piece < kHeld; ++piece) {
        if (piece < pieces) multiply(tokens[piece], piece);
      }
    } else {
      for (int piece = 0; piece < pieces; ++piece) {
        load_tokens(piece + 1 < pieces ? piece + 1 : 0, tokens[1], piece + 1 < pieces);
        multiply(tokens[0], piece);
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
    if constexpr (Chunks::kScaled) {
      if (measures) {
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) {
          float sum = own_squares[j];
          sum += __shfl_xor_sync(kFullWarp, sum, 1);
          sum += __shfl_xor_sync(kFullWarp, sum, 2);
          if (t == 0) squares[warp * S::kTokens + j * 8 + g] = sum;
        }
      }
    } else if (measures && t == g / 2) {
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
      if constexpr (Chunks::kScaled && !Chunks::kBlocks) {
        if (out < p.n) sum *= scales[up * p.n + out];
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

template <typename T, typename Chunks, typename Y, int kWarps, int kStages, int kRowTiles,
          int kTokenTiles, int kHeld, bool kGated>
cudaError_t launch_tiles(const GemmArgs& p, int multiprocessors, const Launch& launch) {
  using S = Tile<kRowTiles, kTokenTiles, Chunks::kValues>;
  constexpr int kOutputs = kGated ? S::kRows / 2 : S::kRows;
  const int tiles = (p.n + kOutputs - 1) / kOutputs;
  const int blocks = tiles < multiprocessors ? tiles : multiprocessors;
  return launch_kernel(
      small_gemm_kernel<T, Chunks, Y, kWarps, kStages, kRowTiles, kTokenTiles, kHeld, kGated>,
      {.grid = dim3(static_cast<unsigned>(blocks)),
       .threads = kWarps * kWarp,
       .shared_bytes = S::shared_bytes(kWarps, kStages)},
      launch, p);
}

template <typename T, typename Chunks, typename Y, int kWarps, int kTokenTiles, bool kGated>
cudaError_t launch_held(const GemmArgs& p, const DeviceLimits& device, const Launch& launch) {
  using S = Tile<1, kTokenTiles>;
  const int64_t rows = kGated ? int64_t{2} * p.n : p.n;
  const bool deep = rows >= int64_t{kDeepTiles} * S::kRows * device.multiprocessors &&
                    S::shared_bytes(kWarps, 3) <= static_cast<size_t>(device.most_shared);
  return deep ? launch_tiles<T, Chunks, Y, kWarps, 3, 1, kTokenTiles, kHeldPieces<Chunks>, kGated>(
                    p, device.multiprocessors, launch)
              : launch_tiles<T, Chunks, Y, kWarps, 2, 1, kTokenTiles, kHeldPieces<Chunks>, kGated>(
                    p, device.multiprocessors, launch);
}

template <typename T, typename Chunks, typename Y, int kWarps, bool kGated>
cudaError_t choose_tile(const GemmArgs& p, const DeviceLimits& device, const Launch& launch) {
  if constexpr (kWarps == kMostWarps) {
    if (p.k <= kHeldColumns) {
      return p.m <= 8 ? launch_held<T, Chunks, Y, kWarps, 1, kGated>(p, device, launch)
                      : launch_held<T, Chunks, Y, kWarps, 2, kGated>(p, device, launch);
    }
  }
  return p.m <= 8 ? launch_tiles<T, Chunks, Y, kWarps, 2, 1, 1, 0, kGated>(
                        p, device.multiprocessors, launch)
                  : launch_tiles<T, Chunks, Y, kWarps, 2, 2, 2, 0, kGated>(
                        p, device.multiprocessors, launch);
}

template <typename T, typename Chunks, typename Y, int kWarps>
cudaError_t dispatch(const GemmArgs& p, const DeviceLimits& device, const Launch& launch) {
  if constexpr (std::is_same_v<T, Y>) {
    if (p.gated) return choose_tile<T, Chunks, Y, kWarps, true>(p, device, launch);
  }
  return choose_tile<T, Chunks, Y, kWarps, false>(p, device, launch);
}

template <typename T, typename Chunks, typename Y>
cudaError_t small_gemm_as(const GemmArgs& p, const Launch& launch) {
  DeviceLimits device;
  if (const cudaError_t error = ask_limits(device); error != cudaSuccess) return error;
  return static_cast<size_t>(device.most_shared) >= Tile<1, 2>::shared_bytes(kMostWarps, 2)
             ? dispatch<T, Chunks, Y, kMostWarps>(p, device, launch)
             : dispatch<T, Chunks, Y, 8>(p, device, launch);
}

}  // namespace
}  // namespace inferd::cuda
