// What stream_gemm.cpp, which chooses and describes, hands to stream_gemm_sm90.cu, which launches.
#pragma once
#include "cuda/device/tensor_map.h"
#include "cuda/gemm/gemm_codes_view.h"
#include "cuda/gemm/stream_gemm.h"

namespace inferd::cuda {

struct StreamGemmParams {
  void* y;
  const void* bias;
  int64_t y_stride;
  int32_t m, n, k;
  int32_t tile_sets;  // of `across` tiles along n: what a cluster takes at a time
  int32_t across, down, splits;
  int32_t x_stages, w_stages;  // of the queues; the launcher's to set
  int32_t x_box;               // tokens in a copy; copies that lie past m are shorter
  int32_t w_pieces;            // copies that bring a tile of w; dealt to the blocks that share it
  bool f32_out, gated, add_to_y;
  bool wide_access;  // y takes 16-byte accesses
  CodesView codes;   // of operands that are codes; k is then in words of two
};

// Clusters of this many blocks that run at a time on the current device, which depends on how many
// multiprocessors each of its GPCs has left. 0 when the device does not say.
int32_t stream_gemm_resident(int32_t size, bool halved);

// Widths of tiles: these and, of the steps between, those that has_tile knows.
constexpr int32_t kNarrowestTile = 48, kWidestTile = 256, kTileStep = 16;

// The widest tile of which two blocks have registers on one multiprocessor; of codes, which hold
// two sets of sums, the widest at all.
constexpr int widest_of_two(int groups) { return groups == 1 ? 192 : 96; }
constexpr int widest_codes_of_two(int groups) { return groups == 1 ? 128 : 48; }
constexpr int32_t kWidestCodesTile = 128;

// There is a kernel of this tile, of which two blocks fit when `halved`. `groups`: 1 or 2. `codes`:
// of e4m3 codes.
bool stream_gemm_has_tile(bool codes, int32_t groups, int32_t columns, bool halved);

// Of one tile: enqueues `clusters` clusters of `cluster` blocks.
using StreamLauncher = cudaError_t (*)(int32_t cluster, int32_t clusters, bool halved,
                                       StreamGemmParams params, const CUtensorMap& x_map,
                                       const CUtensorMap& w_map, const Launch& launch);
// Null for a tile without a kernel; of codes, with scales of blocks or of rows.
StreamLauncher stream_launcher(Half type, int32_t groups, int32_t columns);
StreamLauncher stream_codes_launcher(Half type, bool blocks, int32_t groups, int32_t columns);

}  // namespace inferd::cuda
