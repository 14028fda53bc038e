// Which rows of a batch use which adapter, sorted on the device into tiles of a few rows of one
// adapter: what the products of adapter_products.h walk. Raw device pointers; see adapter_rows.cu.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda/device/launch.h"

namespace inferd::cuda {

constexpr int32_t kAdapterTileRows = 16;
constexpr int32_t kMostAdapterPlaces = 511;

// Rows order[first], .., order[first + rows - 1], all of this place.
struct alignas(16) AdapterTile {
  int32_t place, first, rows, unused;
};

struct AdapterTiles {
  int32_t* counts;     // [2] tiles of rows with an adapter, which come first; tiles of all rows
  AdapterTile* tiles;  // [most_tiles]
  int32_t* order;      // [rows]
  int32_t rows, most_tiles;
};

// The most tiles that so many rows can make, which use at most `places` adapters or none.
constexpr int32_t most_adapter_tiles(int32_t rows, int32_t places) {
  const int32_t kinds = places + 1;
  return rows / kAdapterTileRows + (rows < kinds ? rows : kinds);
}
size_t adapter_tile_bytes(int32_t rows, int32_t places);
// In `memory`, 16-byte aligned, of adapter_tile_bytes.
AdapterTiles adapter_tiles_at(void* memory, int32_t rows, int32_t places);

// Fills `tiles` from row_places [rows], each -1 (none) or a place below `places`, at most
// kMostAdapterPlaces of them, else cudaErrorInvalidValue.
cudaError_t sort_adapter_rows(const AdapterTiles& tiles, const int32_t* row_places, int32_t places,
                              const Launch& launch);

}  // namespace inferd::cuda
