// What adapters add to a product: A x of the rows of each tile ("shrink"), then B times that, added
// to the product ("expand"). Raw device pointers; see
// adapter_shrink.cu and adapter_expand.cu.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/gate.h"
#include "cuda/adapters/adapter_rows.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

constexpr int32_t kAdapterRankStep = 16;
constexpr int32_t kMostAdapterSections = 4;
constexpr int32_t kMostAdapterRank = 512;

constexpr int32_t padded_adapter_rank(int32_t rank) {
  return (rank + kAdapterRankStep - 1) / kAdapterRankStep * kAdapterRankStep;
}

// The factors of all places of a linear. Of a section with the padded rank r, the rows of A from r
// on and the columns of B are not there, and those between its own rank and r are zeros.
struct AdapterFactorsView {
  const void* a;         // [places, sections, rank_room, inputs]
  const void* b;         // [places, outputs of all sections * rank_room]: [outputs, r] of each
  const int32_t* ranks;  // [places, sections] padded; 0: nothing is added
  int32_t inputs;        // a multiple of 8
  int32_t sections;
  int32_t outputs[kMostAdapterSections];  // of each section
  int32_t rank_room;                      // padded
  int32_t all_outputs;                    // their sum
};

// Sums of A x in pieces: of the columns, which several blocks share.
struct AdapterLows {
  float* sums;     // [pieces, rows, sections * rank_room], by place in AdapterTiles::order
  float* squares;  // [pieces, rows] of x, of rows that are normed
  int32_t pieces;
};
// How many pieces so many rows are computed in.
int32_t adapter_low_pieces(const AdapterFactorsView& factors, int32_t rows);
size_t adapter_low_bytes(const AdapterFactorsView& factors, int32_t rows);
AdapterLows adapter_lows_at(void* memory, const AdapterFactorsView& factors, int32_t rows);

struct AdapterProduct {
  AdapterTiles tiles;
  AdapterFactorsView factors;
  AdapterLows lows;
  bool normed;  // of x / sqrt(mean(x^2) + eps)
  float eps;
  bool tiles_settled;  // see launch.cuh; else what follows finds them so
};

// x [rows, inputs], rows x_stride apart, a multiple of 8; 16-byte aligned.
cudaError_t adapter_shrink(Half type, const AdapterProduct& p, const void* x, int64_t x_stride,
                           const Launch& launch);

// y += what the adapters add. y [rows, outputs], of `type` or f32. Tiles, factors: see
// tiles_settled.
cudaError_t adapter_expand(Half type, const AdapterProduct& p, void* y, int64_t y_stride,
                           bool y_f32, const Launch& launch);
// out [rows, d] = gate(g) * u of y = [g | u] [rows, 2d] plus what the adapters add to it, for all
// rows. Of two sections of d, a multiple of 8.
cudaError_t adapter_expand_gated(Half type, const AdapterProduct& p, Gate gate, void* out,
                                 int64_t out_stride, const void* y, int64_t y_stride,
                                 const Launch& launch);

}  // namespace inferd::cuda
