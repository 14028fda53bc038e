// 1. Pairs of tokens and experts as groups of rows for grouped_gemm(): where each expert's rows and
//    tiles lie, the rows of x copied there, and the weighted sum over the experts of a token.
// 2. x and what is summed f16 or bf16, `cols` a multiple of 8, 16-byte aligned rows; sums in f32.
// 3. plan: one block, a thread an expert. gather: a warp a pair. sum: a thread 8 columns of a
//    token.
// 4. Shared memory: the plan's sums of warps.
// 5. Sums in the order of a token's experts, rounded once; no atomics.
// 6. Any architecture from sm_80; up to kMostExperts experts. Grids follow from the most pairs that
//    there may be, so that recorded graphs stay right.
// 7. gather writes, and sum reads, cols * 2 bytes a pair: bound by memory.
// 8. Gale et al. 2023 (MegaBlocks) for groups of rows padded to tiles.
// 9. Not measured apart yet.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/experts/groups.h"

namespace inferd::cuda {
namespace {

constexpr int kPlanThreads = kMostExperts, kThreads = 256;

// Sums of both numbers over the threads before this one.
__device__ int2 sums_before(int2 mine, int2* warps) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int2 through = mine;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int x = __shfl_up_sync(kFullWarp, through.x, step);
    const int y = __shfl_up_sync(kFullWarp, through.y, step);
    if (lane >= step) through = {through.x + x, through.y + y};
  }
  if (lane == kWarp - 1) warps[warp] = through;
  __syncthreads();
  int2 before = {through.x - mine.x, through.y - mine.y};
  for (int i = 0; i < warp; ++i) before = {before.x + warps[i].x, before.y + warps[i].y};
  return before;
}

__global__ void __launch_bounds__(kPlanThreads) plan_kernel(const __grid_constant__ ExpertRows p) {
  __shared__ int2 warps[kPlanThreads / kWarp];
  const auto e = static_cast<int32_t>(threadIdx.x);
  let_next_start();
  wait_for_previous();
  const int32_t last = p.first + p.count;
  int32_t begin = last, end = last;
  if (e < p.held) {
    begin = min(max(p.routing.offsets[e], p.first), last);
    end = min(max(p.routing.offsets[e + 1], p.first), last);
  }
  const int32_t pairs = end - begin, tiles = (pairs + kGroupTileRows - 1) / kGroupTileRows;
  const int32_t rows = (pairs + kGroupRowStep - 1) / kGroupRowStep * kGroupRowStep;
  const int2 before = sums_before({rows, tiles}, warps);
  if (e >= p.held) return;
  p.shifts[e] = before.x - begin;
  for (int32_t i = 0; i < tiles; ++i) {
    const int32_t row = before.x + i * kGroupTileRows;
    p.tiles[before.y + i] = {row, min(row + kGroupTileRows, before.x + pairs), e};
  }
  if (e == p.held - 1) *p.tile_count = before.y + tiles;
}

// The row of the pair at `place`, which is one of those that there are.
__device__ int64_t row_of(const ExpertRows& p, int32_t pair, int32_t place) {
  return place + p.shifts[p.routing.experts[pair] - p.first_held];
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ ExpertRows p, const uint4* x, int64_t x_step, uint4* out,
                  int32_t words) {
  const int lane = threadIdx.x % kWarp;
  const int32_t at = static_cast<int32_t>((blockIdx.x * kThreads + threadIdx.x) / kWarp);
  let_next_start();
  wait_for_previous();
  const int32_t place = p.first + at;
  if (at >= p.count || place >= p.routing.offsets[p.held]) return;
  const int32_t pair = p.routing.pairs[place];
  const uint4* from = x + pair / p.chosen * x_step;
  uint4* to = out + row_of(p, pair, place) * words;
  for (int32_t i = lane; i < words; i += kWarp) to[i] = from[i];
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ ExpertRows p, const __grid_constant__ ExpertRowSum s) {
  const int32_t column = static_cast<int32_t>(blockIdx.y * kThreads + threadIdx.x) * 8;
  const auto token = static_cast<int32_t>(blockIdx.x);
  let_next_start();
  wait_for_previous();
  if (column >= s.cols) return;
  const int64_t at = static_cast<int64_t>(token) * s.cols + column;
  float sum[8] = {};
  if (!s.starts) {
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] = s.sums[at + j];
  }
  for (int32_t i = 0; i < p.chosen; ++i) {
    const int32_t pair = token * p.chosen + i, place = p.routing.places[pair];
    if (place < p.first || place >= p.first + p.count) continue;  // -1 too
    const Vec8<T> down =
        load8(static_cast<const T*>(s.downs) + row_of(p, pair, place) * s.cols + column);
    const float weight = p.routing.weights[pair];
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] = fmaf(weight, to_float(down.v[j]), sum[j]);
  }
  if (s.ends) {
    T* out = static_cast<T*>(s.out) + at;
    Vec8<T> result{};
    if (s.adds) result = load8(out);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      result.v[j] = from_float<T>(s.adds ? sum[j] + to_float(result.v[j]) : sum[j]);
    store8(out, result);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) s.sums[at + j] = sum[j];
  }
}

}  // namespace

void place_expert_rows(ExpertRows& rows, void* memory) {
  rows.tiles = static_cast<GroupTile*>(memory);
  rows.tile_count = reinterpret_cast<int32_t*>(rows.tiles + rows.most_tiles());
  rows.shifts = rows.tile_count + 1;
}

size_t expert_row_bytes(const ExpertRows& rows) {
  return static_cast<size_t>(rows.most_tiles()) * sizeof(GroupTile) +
         static_cast<size_t>(rows.held + 1) * sizeof(int32_t);
}

cudaError_t plan_expert_rows(const ExpertRows& rows, const Launch& launch) {
  if (rows.held < 1 || rows.held > kMostExperts || rows.count < 1) return cudaErrorInvalidValue;
  return launch_kernel(plan_kernel, {.grid = dim3(1), .threads = kPlanThreads}, launch, rows);
}

cudaError_t gather_expert_rows(const ExpertRows& rows, const void* x, int64_t x_stride, void* out,
                               int32_t cols, const Launch& launch) {
  if (cols % 8 != 0 || x_stride % 8 != 0) return cudaErrorInvalidValue;
  constexpr int32_t kPairs = kThreads / kWarp;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>((rows.count + kPairs - 1) / kPairs)),
                          .threads = kThreads};
  return launch_kernel(gather_kernel, shape, launch, rows, static_cast<const uint4*>(x),
                       x_stride / 8, static_cast<uint4*>(out), cols / 8);
}

cudaError_t sum_expert_rows(Half type, const ExpertRows& rows, const ExpertRowSum& sum,
                            const Launch& launch) {
  if (sum.cols % 8 != 0 || sum.tokens < 1) return cudaErrorInvalidValue;
  constexpr int32_t kColumns = kThreads * 8;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(sum.tokens),
                                       static_cast<unsigned>((sum.cols + kColumns - 1) / kColumns)),
                          .threads = kThreads};
  const auto kernel = type == Half::kBF16 ? sum_kernel<__nv_bfloat16> : sum_kernel<__half>;
  return launch_kernel(kernel, shape, launch, rows, sum);
}

}  // namespace inferd::cuda
