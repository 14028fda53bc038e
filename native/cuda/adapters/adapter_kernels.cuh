// What the kernels of both halves share: tables that are settled (see launch.cuh) and grids.
#pragma once
#include <algorithm>

#include "cuda/adapters/adapter_products.h"
#include "cuda/device/common.cuh"
#include "cuda/device/device_limits.h"

namespace inferd::cuda {

__device__ inline uint4 load_settled(const void* p) { return __ldcg(static_cast<const uint4*>(p)); }
__device__ inline AdapterTile tile_at(const AdapterTiles& tiles, int32_t i) {
  const uint4 t = load_settled(tiles.tiles + i);
  return {static_cast<int32_t>(t.x), static_cast<int32_t>(t.y), static_cast<int32_t>(t.z), 0};
}
__device__ inline int32_t rank_of(const AdapterFactorsView& f, int32_t place, int32_t section) {
  return place < 0 ? 0 : __ldcg(f.ranks + place * f.sections + section);
}

inline int32_t row_tiles(int32_t rows) { return (rows + kAdapterTileRows - 1) / kAdapterTileRows; }

inline bool takes(const AdapterProduct& p) {
  const AdapterFactorsView& f = p.factors;
  return f.inputs > 0 && f.inputs % 8 == 0 && f.sections >= 1 &&
         f.sections <= kMostAdapterSections && f.rank_room >= kAdapterRankStep &&
         f.rank_room % kAdapterRankStep == 0 && f.rank_room <= kMostAdapterRank;
}

// Blocks for `items`, or as many as the device runs at once.
inline cudaError_t grid_of(int64_t items, int32_t blocks_each, unsigned& grid) {
  DeviceLimits limits;
  const cudaError_t error = ask_limits(limits);
  grid = static_cast<unsigned>(
      std::min<int64_t>(items, int64_t{limits.multiprocessors} * blocks_each));
  return error;
}

}  // namespace inferd::cuda
