// 1. The products of each expert's matrices with the rows of its tokens, the gate in the first of
//    them, and the weighted sum over the experts of a token: experts.h.
// 2. x rows and weights f16 or bf16, k a multiple of 8, 16-byte aligned rows; results of the first
//    product in that type, of the second in f32.
// 3. A block is one tile: up to 8, 16 or 32 pairs of one expert by 16 outputs, its 4 warps each
//    with slices of k (device/slice_products.cuh). The block finds its expert from the offsets:
//    tiles of an expert follow each other, and no tile has pairs of two.
// 4. 2 KB of shared memory for each 8 pairs and part; 90 to 142 registers, half of them loads under
//    way. x comes through L1.
// 5. Products of 16-bit values by tensor cores, f32 sums in a fixed order, the same in tiles of any
//    width: a row's bits depend on its input alone.
// 6. Any architecture from sm_80. The grid follows from the number of pairs that there may be:
//    blocks beyond the last tile end at once, so recorded graphs stay right.
// 7. Reads an expert's weights once for a tile of its tokens: in decode once a step, which bounds
//    it. Many tokens an expert go by groups.h instead.
// 8. Grouped products: Gale et al. 2023 (MegaBlocks).
// 9. A warp an output, lanes along k, in f32 by multiply-adds: bound by instructions at one token
//    already, as each of 8 columns costs them whether there is a token or not.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/slice_products.cuh"
#include "cuda/experts/experts.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = kSliceWarps * kWarp, kTokens = kSliceTokens, kOutputs = kSliceOutputs;

enum class Result { kPlain, kSilu, kGeluTanh, kClampedSwiglu };

template <Result kResult>
__device__ float gated(float g, float u) {
  if constexpr (kResult == Result::kSilu) {
    return silu(g) * u;
  } else if constexpr (kResult == Result::kGeluTanh) {
    const float y = 0.7978845608f * (g + 0.044715f * g * g * g);
    return (g - g / (1.f + __expf(2.f * y))) * u;
  } else {
    g = fminf(g, 7.f);
    return __fdividef(g, 1.f + __expf(-1.702f * g)) * (fmaxf(-7.f, fminf(u, 7.f)) + 1.f);
  }
}

// Pairs [begin, end) of one expert; expert = -1: the tile is beyond the last.
struct Tile {
  int32_t expert = -1, begin = 0, end = 0;
};

// The `number`-th tile of pairs [first, first + count), of `rows` pairs each. Every warp finds it
// by itself, from the offsets of 128 experts at a time: their loads are under way together.
template <int kRows>
__device__ Tile find_tile(const ExpertProduct& p, int32_t number, int lane) {
  constexpr int kEach = 4;  // neighbouring experts of a lane
  const int32_t last = p.first + p.count;
  int32_t tiles = 0;  // of the experts before
  for (int32_t base = 0; base < p.held; base += kEach * kWarp) {
    int32_t edge[kEach + 1], own[kEach], sum = 0;
#pragma unroll
    for (int i = 0; i <= kEach; ++i)
      edge[i] = min(max(p.offsets[min(base + lane * kEach + i, p.held)], p.first), last);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      own[i] = (edge[i + 1] - edge[i] + kRows - 1) / kRows;
      sum += own[i];
    }
    int32_t through = sum;  // of the lanes up to this one
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int32_t other = __shfl_up_sync(kFullWarp, through, step);
      if (lane >= step) through += other;
    }
    const int32_t before = tiles + through - sum;
    const unsigned found = __ballot_sync(kFullWarp, number >= before && number < before + sum);
    if (found != 0) {
      const int at = __ffs(static_cast<int>(found)) - 1;
      Tile tile;
      int32_t left = number - before;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (left >= 0 && left < own[i]) {
          const int32_t from = edge[i] + left * kRows;
          tile = {base + lane * kEach + i, from, min(from + kRows, edge[i + 1])};
        }
        left -= own[i];
      }
      return {__shfl_sync(kFullWarp, tile.expert, at), __shfl_sync(kFullWarp, tile.begin, at),
              __shfl_sync(kFullWarp, tile.end, at)};
    }
    tiles += __shfl_sync(kFullWarp, through, kWarp - 1);
  }
  return {};
}

template <typename T, Result kResult, int kColumns>
__global__ void __launch_bounds__(kThreads)
    product_kernel(const __grid_constant__ ExpertProduct p) {
  constexpr bool kGated = kResult != Result::kPlain;
  constexpr int kParts = kGated ? 2 : 1, kRows = kColumns * kTokens;
  constexpr int kAhead = kColumns > 2 ? 1 : 2;  // steps of a round
  __shared__ SliceSums<kParts, kColumns> slices;
  const int lane = threadIdx.x % kWarp, g = lane / 4;
  let_next_start();
  wait_for_previous();
  const Tile tile = find_tile<kRows>(p, static_cast<int32_t>(blockIdx.y), lane);
  if (tile.expert < 0) return;
  const T* x[kColumns];
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    // What is beyond counts for nothing.
    const int32_t at = min(tile.begin + n * kTokens + g, tile.end - 1);
    const int64_t row = p.pairs == nullptr ? at - p.first : p.pairs[at] / p.chosen;
    x[n] = static_cast<const T*>(p.x) + row * p.x_stride;
  }
  const int32_t first = static_cast<int32_t>(blockIdx.x) * kOutputs;
  const T* w[kParts][2];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = tile.expert * p.w_rows + int64_t{part} * p.outputs +
                          min(first + half * 8 + g, p.outputs - 1);
      w[part][half] = static_cast<const T*>(p.w) + row * p.k;
    }
  }
  float sums[kParts][kColumns][4] = {};
  multiply_slices<T, kAhead>(sums, w, x, p.k);
  share_slices(sums, slices);
  // A thread finishes one output of one token of each eight.
  const int output = threadIdx.x % kOutputs, token = threadIdx.x / kOutputs;
  const int32_t out = first + output;
  if (out >= p.outputs) return;
  const float* bias = p.bias == nullptr ? nullptr : p.bias + tile.expert * p.outputs * kParts + out;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int32_t pair = tile.begin + n * kTokens + token;
    if (pair >= tile.end) return;
    float y[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      y[part] = bias == nullptr ? 0.f : bias[int64_t{part} * p.outputs];
      y[part] += slices.sum(part, n, output, token);
    }
    const int64_t at = static_cast<int64_t>(pair - p.first) * p.outputs + out;
    if constexpr (kGated) {
      static_cast<T*>(p.y)[at] = from_float<T>(gated<kResult>(y[0], y[1]));
    } else {
      static_cast<float*>(p.y)[at] = y[0];
    }
  }
}

// A tile has one pair at least, and an expert's last tile may not be full.
int32_t most_tiles(const ExpertProduct& p, int rows) {
  const int64_t full = (int64_t{p.count} + rows - 1) / rows + p.held;
  return static_cast<int32_t>(full < p.count ? full : p.count);
}

template <typename T, Result kResult, int kColumns>
cudaError_t run_columns(const ExpertProduct& p, const Launch& launch) {
  const dim3 grid(static_cast<unsigned>((p.outputs + kOutputs - 1) / kOutputs),
                  static_cast<unsigned>(most_tiles(p, kColumns * kTokens)));
  return launch_kernel(product_kernel<T, kResult, kColumns>, {.grid = grid, .threads = kThreads},
                       launch, p);
}

// Tiles as wide as experts have tokens on average: a row's bits are the same in all of them.
template <typename T, Result kResult>
cudaError_t run(const ExpertProduct& p, const Launch& launch) {
  const int32_t each = p.count / p.held;
  if (each <= 4) return run_columns<T, kResult, 1>(p, launch);
  return each <= 12 ? run_columns<T, kResult, 2>(p, launch) : run_columns<T, kResult, 4>(p, launch);
}

bool takes(const ExpertProduct& p) {
  return p.count > 0 && p.held > 0 && p.outputs > 0 && p.k > 0 && p.k % 8 == 0 &&
         p.x_stride % 8 == 0 && most_tiles(p, kTokens) <= 65535;
}

template <typename T>
cudaError_t run_gated(Gate gate, const ExpertProduct& p, const Launch& launch) {
  switch (gate) {
    case Gate::kSilu:
      return run<T, Result::kSilu>(p, launch);
    case Gate::kGeluTanh:
      return run<T, Result::kGeluTanh>(p, launch);
    case Gate::kClampedSwiglu:
      return run<T, Result::kClampedSwiglu>(p, launch);
  }
  return cudaErrorInvalidValue;
}

constexpr int kSumThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kSumThreads) sum_kernel(const __grid_constant__ ExpertSum p) {
  const int32_t token = blockIdx.y;
  const int32_t column = blockIdx.x * kSumThreads + threadIdx.x;
  let_next_start();
  wait_for_previous();
  if (column >= p.cols) return;
  const int64_t at = static_cast<int64_t>(token) * p.cols + column;
  float sum = p.starts ? 0.f : p.sums[at];
  for (int32_t i = 0; i < p.chosen; ++i) {
    const int32_t pair = token * p.chosen + i, place = p.places[pair] - p.first;
    if (p.places[pair] < 0 || place < 0 || place >= p.count) continue;
    sum = fmaf(p.weights[pair], p.downs[static_cast<int64_t>(place) * p.cols + column], sum);
  }
  if (p.ends) {
    T* out = static_cast<T*>(p.out) + at;
    *out = from_float<T>(p.adds ? sum + to_float(*out) : sum);
  } else {
    p.sums[at] = sum;
  }
}

}  // namespace

cudaError_t gated_expert_product(Half type, Gate gate, const ExpertProduct& p,
                                 const Launch& launch) {
  if (!takes(p)) return cudaErrorInvalidValue;
  return type == Half::kBF16 ? run_gated<__nv_bfloat16>(gate, p, launch)
                             : run_gated<__half>(gate, p, launch);
}

cudaError_t plain_expert_product(Half type, const ExpertProduct& p, const Launch& launch) {
  if (!takes(p)) return cudaErrorInvalidValue;
  return type == Half::kBF16 ? run<__nv_bfloat16, Result::kPlain>(p, launch)
                             : run<__half, Result::kPlain>(p, launch);
}

cudaError_t sum_experts(Half type, const ExpertSum& p, const Launch& launch) {
  // A grid has 65535 rows at most: more tokens go in pieces.
  constexpr int32_t kMostTokens = 65535;
  for (int32_t token = 0; token < p.tokens; token += kMostTokens) {
    ExpertSum piece = p;
    const int64_t skipped = static_cast<int64_t>(token) * p.cols;
    piece.tokens = p.tokens - token < kMostTokens ? p.tokens - token : kMostTokens;
    piece.sums += skipped;
    piece.out = static_cast<uint16_t*>(p.out) + skipped;
    piece.weights += static_cast<int64_t>(token) * p.chosen;
    piece.places += static_cast<int64_t>(token) * p.chosen;
    const dim3 grid(static_cast<unsigned>((p.cols + kSumThreads - 1) / kSumThreads),
                    static_cast<unsigned>(piece.tokens));
    const auto kernel = type == Half::kBF16 ? sum_kernel<__nv_bfloat16> : sum_kernel<__half>;
    const cudaError_t error =
        launch_kernel(kernel, {.grid = grid, .threads = kSumThreads}, launch, piece);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace inferd::cuda
