// 1. A counting sort of the rows of a batch by adapter, and its tiles: 16 rows of one adapter each,
//    those without an adapter last.
// 2. row_places [rows] int32, in; counts [2], tiles [most_tiles] of 16 bytes, order [rows], out.
// 3. One block; a thread owns every 512th row, and one place, whose tiles it writes.
// 4. 8 KB of shared memory: counts, running sums.
// 5. Integers. Rows of an adapter come in any order, and each has the same products in any.
// 6. At most 511 places; any architecture from sm_80.
// 7. Once a batch; 12 bytes a row. Bound by latency, a few microseconds. Not timed alone.
// 8. Counting sort; tiles of one adapter as in S-LoRA and Punica (Sheng et al., Chen et al. 2023).
// 9. On the host: recorded graphs would hold the tiles of the batch they were recorded with.
#include "cuda/adapters/adapter_rows.h"
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 512;
static_assert(kMostAdapterPlaces < kThreads);

__global__ void sort_rows_kernel(AdapterTiles to, const int32_t* row_places, int32_t places) {
  __shared__ int32_t count[kThreads], rows_end[kThreads], tiles_end[kThreads], cursor[kThreads];
  const int i = threadIdx.x;
  let_next_start();
  count[i] = 0;
  wait_for_previous();
  __syncthreads();
  // Rows of none are counted behind the places.
  const auto kind_of = [&](int32_t row) {
    const int32_t place = row_places[row];
    return place < 0 ? places : place;
  };
  for (int32_t row = i; row < to.rows; row += kThreads) atomicAdd(&count[kind_of(row)], 1);
  __syncthreads();
  const int32_t own = count[i], own_tiles = (own + kAdapterTileRows - 1) / kAdapterTileRows;
  rows_end[i] = own;
  tiles_end[i] = own_tiles;
  for (int step = 1; step < kThreads; step *= 2) {
    __syncthreads();
    const int32_t rows = i >= step ? rows_end[i - step] : 0;
    const int32_t tiles = i >= step ? tiles_end[i - step] : 0;
    __syncthreads();
    rows_end[i] += rows;
    tiles_end[i] += tiles;
  }
  const int32_t first = rows_end[i] - own, first_tile = tiles_end[i] - own_tiles;
  cursor[i] = first;
  if (i == places) {
    to.counts[0] = first_tile;
    to.counts[1] = tiles_end[i];
  }
  for (int32_t t = 0; t < own_tiles; ++t) {
    const int32_t done = t * kAdapterTileRows;
    to.tiles[first_tile + t] = {i == places ? -1 : i, first + done,
                                own - done < kAdapterTileRows ? own - done : kAdapterTileRows, 0};
  }
  __syncthreads();
  for (int32_t row = i; row < to.rows; row += kThreads)
    to.order[atomicAdd(&cursor[kind_of(row)], 1)] = row;
}

size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

size_t adapter_tile_bytes(int32_t rows, int32_t places) {
  return 16 + static_cast<size_t>(most_adapter_tiles(rows, places)) * sizeof(AdapterTile) +
         padded(static_cast<size_t>(rows) * sizeof(int32_t));
}

AdapterTiles adapter_tiles_at(void* memory, int32_t rows, int32_t places) {
  auto* at = static_cast<char*>(memory);
  const int32_t most = most_adapter_tiles(rows, places);
  auto* tiles = reinterpret_cast<AdapterTile*>(at + 16);
  return {.counts = reinterpret_cast<int32_t*>(at),
          .tiles = tiles,
          .order = reinterpret_cast<int32_t*>(tiles + most),
          .rows = rows,
          .most_tiles = most};
}

cudaError_t sort_adapter_rows(const AdapterTiles& tiles, const int32_t* row_places, int32_t places,
                              const Launch& launch) {
  if (places < 0 || places > kMostAdapterPlaces || tiles.rows < 0) return cudaErrorInvalidValue;
  if (tiles.rows == 0) return cudaSuccess;
  return launch_kernel(sort_rows_kernel, {.grid = dim3(1), .threads = kThreads}, launch, tiles,
                       row_places, places);
}

}  // namespace inferd::cuda
