// 1. The products of each expert's matrices with the rows of its tokens, the gate in the first of
//    them, and the weighted sum over the experts of a token: experts.h.
//    Weights of codes go to coded_products.cu.
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
//    already, as each of 8 columns costs them whether there is a token or not. Early start of the
//    plain product: see coded_products.cu; Qwen3-30B-A3B 2.98 ms a step for 2.71, of 8 tokens 10.3
//    for 7.3.
#include "cuda/device/launch.cuh"
#include "cuda/experts/coded_products.h"
#include "cuda/experts/expert_tile.cuh"

namespace inferd::cuda {
namespace {

constexpr int kThreads = kExpertThreads, kTokens = kSliceTokens, kOutputs = kSliceOutputs;

template <typename T, int kParts, int kColumns>
__global__ void __launch_bounds__(kThreads)
    product_kernel(const __grid_constant__ ExpertProduct p, Gate gate) {
  constexpr int kRows = kColumns * kTokens;
  constexpr int kAhead = kColumns > 2 ? 1 : 2;  // steps of a round
  __shared__ SliceSums<kParts, kColumns> slices;
  const int lane = threadIdx.x % kWarp, g = lane / 4;
  let_next_start();
  wait_for_previous();
  const ExpertTile tile = find_tile<kRows>(p, static_cast<int32_t>(blockIdx.y), lane);
  if (tile.expert < 0) return;
  const auto rows_of_x = [&](const T*(&x)[kColumns]) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      // What is beyond counts for nothing.
      const int32_t at = min(tile.begin + n * kTokens + g, tile.end - 1);
      x[n] = static_cast<const T*>(p.x) + row_of_pair(p, at) * p.x_stride;
    }
  };
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
  multiply_slices<T, kAhead>(sums, w, rows_of_x, p.k);
  share_slices(sums, slices);
  finish_tile<T>(p, gate, tile, first, slices, 1.f);
}

template <typename T, int kParts, int kColumns>
cudaError_t run_columns(const ExpertProduct& p, Gate gate, const Launch& launch) {
  const dim3 grid(static_cast<unsigned>((p.outputs + kOutputs - 1) / kOutputs),
                  static_cast<unsigned>(most_tiles(p, kColumns * kTokens)));
  return launch_kernel(product_kernel<T, kParts, kColumns>, {.grid = grid, .threads = kThreads},
                       launch, p, gate);
}

// Tiles as wide as experts have tokens on average: a row's bits are the same in all of them.
template <typename T, int kParts>
cudaError_t run(const ExpertProduct& p, Gate gate, const Launch& launch) {
  const int32_t each = p.count / p.held;
  if (each <= 4) return run_columns<T, kParts, 1>(p, gate, launch);
  return each <= 12 ? run_columns<T, kParts, 2>(p, gate, launch)
                    : run_columns<T, kParts, 4>(p, gate, launch);
}

bool takes(const ExpertProduct& p) {
  return p.count > 0 && p.held > 0 && p.outputs > 0 && p.k > 0 && p.k % 8 == 0 &&
         p.x_stride % 8 == 0 && most_tiles(p, kTokens) <= 65535;
}

constexpr int kSumThreads = 256;
constexpr int kTogether = 8;  // pairs whose loads are under way together

template <typename T>
__global__ void __launch_bounds__(kSumThreads) sum_kernel(const __grid_constant__ ExpertSum p) {
  const int32_t token = blockIdx.y;
  const int32_t column = blockIdx.x * kSumThreads + threadIdx.x;
  let_next_start();
  wait_for_previous();
  if (column >= p.cols) return;
  const int64_t at = static_cast<int64_t>(token) * p.cols + column;
  float sum = p.starts ? 0.f : p.sums[at];
  const int32_t* const places = p.places + static_cast<int64_t>(token) * p.chosen;
  const float* const weights = p.weights + static_cast<int64_t>(token) * p.chosen;
  for (int32_t first = 0; first < p.chosen; first += kTogether) {
    bool live[kTogether];
    float weight[kTogether], down[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int32_t own = min(first + i, p.chosen - 1), place = places[own];
      live[i] = first + i < p.chosen && place >= p.first && place < p.first + p.count;
      weight[i] = weights[own];
      down[i] = live[i] ? p.downs[static_cast<int64_t>(place - p.first) * p.cols + column] : 0.f;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      if (live[i]) sum = fmaf(weight[i], down[i], sum);
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
  if (p.coded) return coded_expert_product(type, true, gate, p, launch);
  return type == Half::kBF16 ? run<__nv_bfloat16, 2>(p, gate, launch)
                             : run<__half, 2>(p, gate, launch);
}

cudaError_t plain_expert_product(Half type, const ExpertProduct& p, const Launch& launch) {
  if (!takes(p)) return cudaErrorInvalidValue;
  if (p.coded) return coded_expert_product(type, false, Gate::kSilu, p, launch);
  return type == Half::kBF16 ? run<__nv_bfloat16, 1>(p, Gate::kSilu, launch)
                             : run<__half, 1>(p, Gate::kSilu, launch);
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
