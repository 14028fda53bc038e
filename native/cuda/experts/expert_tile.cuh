// What products of experts share, whatever their weights are: the tile of a block, and what becomes
// of its sums. A block is one tile: up to 8, 16 or 32 pairs of one expert by 16 outputs.
#pragma once
#include "cuda/device/common.cuh"
#include "cuda/device/slice_products.cuh"
#include "cuda/experts/experts.h"

namespace inferd::cuda {

constexpr int kExpertThreads = kSliceWarps * kWarp;

// gate(g) * u
__device__ inline float gated(Gate gate, float g, float u) {
  if (gate == Gate::kSilu) return silu(g) * u;
  if (gate == Gate::kGeluTanh) {
    const float y = 0.7978845608f * (g + 0.044715f * g * g * g);
    return (g - g / (1.f + __expf(2.f * y))) * u;
  }
  g = fminf(g, 7.f);
  return __fdividef(g, 1.f + __expf(-1.702f * g)) * (fmaxf(-7.f, fminf(u, 7.f)) + 1.f);
}

// Pairs [begin, end) of one expert; expert = -1: the tile is beyond the last.
struct ExpertTile {
  int32_t expert = -1, begin = 0, end = 0;
};

// The `number`-th tile of pairs [first, first + count), of `rows` pairs each. Every warp finds it
// by itself, from the offsets of 128 experts at a time: their loads are under way together.
template <int kRows>
__device__ ExpertTile find_tile(const ExpertProduct& p, int32_t number, int lane) {
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
      ExpertTile tile;
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

// The row of x that belongs to the pair at place `at`.
__device__ inline int64_t row_of_pair(const ExpertProduct& p, int32_t at) {
  return p.pairs == nullptr ? at - p.first : p.pairs[at] / p.chosen;
}

// Writes the sums, times `unit`, of outputs [first, first + 16) of the tile: of two parts the
// gate's and the other's. A thread finishes one output of one token of each eight.
template <typename T, int kParts, int kColumns>
__device__ void finish_tile(const ExpertProduct& p, Gate gate, const ExpertTile& tile,
                            int32_t first, const SliceSums<kParts, kColumns>& slices, float unit) {
  const int output = threadIdx.x % kSliceOutputs, token = threadIdx.x / kSliceOutputs;
  const int32_t out = first + output;
  if (out >= p.outputs) return;
  const float* bias = p.bias == nullptr ? nullptr : p.bias + tile.expert * p.outputs * kParts + out;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int32_t pair = tile.begin + n * kSliceTokens + token;
    if (pair >= tile.end) return;
    float y[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      y[part] = bias == nullptr ? 0.f : bias[int64_t{part} * p.outputs];
      y[part] += slices.sum(part, n, output, token) * unit;
    }
    const int64_t at = static_cast<int64_t>(pair - p.first) * p.outputs + out;
    if constexpr (kParts == 2) {
      static_cast<T*>(p.y)[at] = from_float<T>(gated(gate, y[0], y[1]));
    } else {
      static_cast<float*>(p.y)[at] = y[0];
    }
  }
}

// A tile has one pair at least, and an expert's last tile may not be full.
inline int32_t most_tiles(const ExpertProduct& p, int rows) {
  const int64_t full = (int64_t{p.count} + rows - 1) / rows + p.held;
  return static_cast<int32_t>(full < p.count ? full : p.count);
}

}  // namespace inferd::cuda
