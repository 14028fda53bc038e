// 1. Sorts the rows of a step on the device: those of one token into the list of decode attention,
//    the others into tiles of prefill attention, so that a recorded step follows its rows without
//    the host.
// 2. rows [num_rows] and their first tokens [num_rows + 1] in; lists as in row_lists.h, i32.
// 3. One block, a thread a row: places by sums over the block, a row's tiles by its thread. Tiles
//    then go to their places by rank, most keys first: each counts those ahead of it.
// 4. 20 KB of shared memory: the tiles, before they are in order.
// 5. Integers; the lists of the host (build_prefill_tiles), entry by entry.
// 6. Up to 1024 rows, and as many tiles, on any architecture from sm_80.
// 7. Two waits on memory; once a step.
// 8. The order is that of build_prefill_tiles.
// 9. -
#include "cuda/attention/row_lists.h"
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"

namespace inferd::cuda {
namespace {

constexpr int kThreads = kMostListedRows;

struct Counts {
  int32_t singles, tiles;
};

// What the threads before this one have, and with `total` all of them.
__device__ inline Counts count_before(Counts mine, Counts* total) {
  __shared__ Counts sums[kThreads / kWarp];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  Counts until = mine;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int32_t singles = __shfl_up_sync(kFullWarp, until.singles, step);
    const int32_t tiles = __shfl_up_sync(kFullWarp, until.tiles, step);
    if (lane >= step) until = {until.singles + singles, until.tiles + tiles};
  }
  if (lane == kWarp - 1) sums[warp] = until;
  __syncthreads();
  Counts before = {0, 0}, all = {0, 0};
  for (int i = 0; i < kThreads / kWarp; ++i) {
    if (i == warp) before = all;
    all = {all.singles + sums[i].singles, all.tiles + sums[i].tiles};
  }
  *total = all;
  return {before.singles + until.singles - mine.singles, before.tiles + until.tiles - mine.tiles};
}

__device__ inline bool comes_first(const PrefillTile& a, const PrefillTile& b) {
  const int32_t a_end = a.first_position + a.count, b_end = b.first_position + b.count;
  return a_end != b_end ? a_end > b_end : a.first_token < b.first_token;
}

__global__ void __launch_bounds__(kThreads)
    list_rows_kernel(const __grid_constant__ RowListsParams p) {
  __shared__ PrefillTile tiles[kMostListedRows];
  wait_for_previous();
  let_next_start();
  const int32_t r = static_cast<int32_t>(threadIdx.x);
  const PlanRow row = r < p.num_rows ? p.rows[r] : PlanRow{0, 0, 0, 0};
  const int32_t first_token = r < p.num_rows ? p.row_offsets[r] : 0;
  const bool single = row.count == 1;
  const int32_t own_tiles = row.count > 1 ? (row.count + p.tile_tokens - 1) / p.tile_tokens : 0;
  Counts total;
  const Counts before = count_before({single, own_tiles}, &total);
  if (single) {
    p.decode_tokens[before.singles] = first_token;
    p.decode_slots[before.singles] = row.slot;
  }
  if (r >= total.singles && r < p.num_rows) {
    p.decode_tokens[r] = -1;
    p.decode_slots[r] = 0;
  }
  const int32_t count = min(total.tiles, kMostListedRows);
  for (int32_t i = 0; i < own_tiles && before.tiles + i < kMostListedRows; ++i) {
    const int32_t at = i * p.tile_tokens;
    tiles[before.tiles + i] = {row.slot, first_token + at, min(p.tile_tokens, row.count - at),
                               row.start + at};
  }
  __syncthreads();
  if (r < count) {
    const PrefillTile tile = tiles[r];
    int32_t place = 0;
    for (int32_t i = 0; i < count; ++i) place += comes_first(tiles[i], tile);
    p.tiles[place] = tile;
  }
  if (r == 0) *p.num_tiles = count;
}

}  // namespace

cudaError_t list_rows(const RowListsParams& params, const Launch& launch) {
  if (params.num_rows < 0 || params.num_rows > kMostListedRows || params.tile_tokens <= 0)
    return cudaErrorInvalidValue;
  return launch_kernel(list_rows_kernel, {dim3(1), kThreads}, launch, params);
}

}  // namespace inferd::cuda
