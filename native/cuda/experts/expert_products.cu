// 1. The products of each expert's matrices with the rows of its tokens, the gate in the first of
//    them, and the weighted sum over the experts of a token: experts.h.
// 2. x rows and weights f16 or bf16, k a multiple of 8, 16-byte aligned rows; results of the first
//    product in that type, of the second in f32.
// 3. A block is one tile: up to 8 pairs of one expert by 16 outputs; each of its 4 warps has 4 of
//    the outputs, one after the other, its lanes along k. The block finds its expert from the
//    offsets: tiles of an expert follow each other, and no tile has pairs of two.
// 4. Registers hold 8 sums (16 when gated). x comes through L1, which holds 8 rows of 2048 values.
// 5. f32 sums in a fixed order, by lanes and then across: a row's bits depend on its input alone.
// 6. Any architecture from sm_80. The grid follows from the number of pairs that there may be:
//    blocks beyond the last tile end at once, so recorded graphs stay right.
// 7. Reads an expert's weights once for 8 of its tokens: with few tokens an expert, as in decode,
//    once a step. Prefill is bound by its multiply-adds, far below what tensor cores do. Not
//    measured yet.
// 8. Grouped products: Gale et al. 2023 (MegaBlocks).
// 9. Nothing yet: this version is for being right.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/experts/experts.h"

namespace inferd::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRows = 8;     // pairs of a tile
constexpr int kOutputs = 4;  // of a warp
constexpr int kTileOutputs = kWarps * kOutputs;

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

// The `number`-th tile of pairs [first, first + count). Every warp finds it by itself.
__device__ Tile find_tile(const ExpertProduct& p, int32_t number, int lane) {
  const int32_t last = p.first + p.count;
  int32_t tiles = 0;  // of the experts before
  for (int32_t base = 0; base < p.held; base += kWarp) {
    const int32_t e = base + lane;
    const int32_t begin = e < p.held ? max(p.offsets[e], p.first) : last;
    const int32_t end = e < p.held ? min(p.offsets[e + 1], last) : last;
    const int32_t own = end > begin ? (end - begin + kRows - 1) / kRows : 0;
    int32_t sum = own;  // of the lanes up to this one
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int32_t other = __shfl_up_sync(kFullWarp, sum, step);
      if (lane >= step) sum += other;
    }
    const int32_t before = tiles + sum - own;
    const unsigned found = __ballot_sync(kFullWarp, number >= before && number < before + own);
    if (found != 0) {
      const int at = __ffs(static_cast<int>(found)) - 1;
      const int32_t from = begin + (number - before) * kRows;
      return {base + at, __shfl_sync(kFullWarp, from, at),
              __shfl_sync(kFullWarp, min(from + kRows, end), at)};
    }
    tiles += __shfl_sync(kFullWarp, sum, kWarp - 1);
  }
  return {};
}

template <typename T, Result kResult>
__global__ void __launch_bounds__(kThreads)
    product_kernel(const __grid_constant__ ExpertProduct p) {
  constexpr bool kGated = kResult != Result::kPlain;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  let_next_start();
  wait_for_previous();
  const Tile tile = find_tile(p, static_cast<int32_t>(blockIdx.y), lane);
  if (tile.expert < 0) return;
  const T* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int32_t at = min(tile.begin + r, tile.end - 1);  // what is beyond counts for nothing
    const int64_t row = p.pairs == nullptr ? at - p.first : p.pairs[at] / p.chosen;
    x[r] = static_cast<const T*>(p.x) + row * p.x_stride;
  }
  const T* weights = static_cast<const T*>(p.w) + tile.expert * p.w_rows * p.k;
  const int32_t first = static_cast<int32_t>(blockIdx.x) * kTileOutputs + warp * kOutputs;
  for (int32_t out = first; out < min(first + kOutputs, p.outputs); ++out) {
    const T* gate = weights + static_cast<int64_t>(out) * p.k;
    const T* up = gate + static_cast<int64_t>(p.outputs) * p.k;
    float sum[kRows] = {}, up_sum[kRows] = {};
    for (int32_t k = lane * 8; k < p.k; k += kWarp * 8) {
      const Vec8<T> w = load8(gate + k);
      Vec8<T> u;
      if constexpr (kGated) u = load8(up + k);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Vec8<T> v = load8(x[r] + k);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          sum[r] = fmaf(to_float(v.v[j]), to_float(w.v[j]), sum[r]);
          if constexpr (kGated) up_sum[r] = fmaf(to_float(v.v[j]), to_float(u.v[j]), up_sum[r]);
        }
      }
    }
    const float* bias =
        p.bias == nullptr ? nullptr : p.bias + tile.expert * p.outputs * (kGated ? 2 : 1) + out;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float y = warp_sum(sum[r]);
      if (bias != nullptr) y += bias[0];
      if constexpr (kGated) {
        float u = warp_sum(up_sum[r]);
        if (bias != nullptr) u += bias[p.outputs];
        y = gated<kResult>(y, u);
      }
      if (lane != 0 || tile.begin + r >= tile.end) continue;
      const int64_t at = static_cast<int64_t>(tile.begin + r - p.first) * p.outputs + out;
      if constexpr (kGated) {
        static_cast<T*>(p.y)[at] = from_float<T>(y);
      } else {
        static_cast<float*>(p.y)[at] = y;
      }
    }
  }
}

// A tile has one pair at least, and an expert's last tile may not be full.
int32_t most_tiles(const ExpertProduct& p) {
  const int64_t full = (int64_t{p.count} + kRows - 1) / kRows + p.held;
  return static_cast<int32_t>(full < p.count ? full : p.count);
}

template <typename T, Result kResult>
cudaError_t run(const ExpertProduct& p, const Launch& launch) {
  const dim3 grid(static_cast<unsigned>((p.outputs + kTileOutputs - 1) / kTileOutputs),
                  static_cast<unsigned>(most_tiles(p)));
  return launch_kernel(product_kernel<T, kResult>, {.grid = grid, .threads = kThreads}, launch, p);
}

bool takes(const ExpertProduct& p) {
  return p.count > 0 && p.held > 0 && p.outputs > 0 && p.k > 0 && p.k % 8 == 0 &&
         p.x_stride % 8 == 0 && most_tiles(p) <= 65535;
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
    static_cast<T*>(p.out)[at] = from_float<T>(sum);
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
