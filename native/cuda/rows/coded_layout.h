// How weights that are small codes lie on the device: in tiles of 16 rows and 128 columns, each in
// one piece of memory and in the order in which tensor cores take it, so that all products read the
// same bytes, and read them as they lie.
//
//   weight   [tile of rows][tile of columns], both filled up with zeros
//   tile     its codes, then its scales (and minima)
//   codes    [part of the columns][lane = 4 g + t] x 16 bytes. For every 16 columns, a step, a lane
//            has what it has of A in mma.m16n8k16 (device/mma.cuh): of rows g and g + 8, columns
//            2t, 2t + 1, 2t + 8 and 2t + 9, where `high` marks the last two.
//              4 bits: a word a step; byte 2 (column % 2) + (row / 8), its upper half is `high`
//              e2m1 as 4 bits
//              8 bits: two words a step, that of row g first; byte 2 high + column % 2
//   scales   [group of columns][g] of two 16-bit numbers, of rows g and g + 8, or of four with
//            their minima behind them; of e2m1 [group of 32 columns][g] of two bytes
//
// With the code u, 0 to 15 or 0 to 255, the scale s and the minimum m of its group
//   w = s u + m, without minima m = -8 s or -128 s
// as numbers of the type of the activations. In bf16 they are kept as s 2^101 and m 2^-32: a code
// in the low bits of a bf16 is a number u 2^-133, so that one multiplication makes w 2^-32 of it,
// and what was summed is multiplied by 2^32. These factors are exact.
//
// With a code v of e2m1, w = 2^(e - 127) v, where e is the byte that is kept; 161 stands for all
// from 2^34 on, and for no number. Its sign and its three other bits, moved to the lowest bits of
// the exponent and the first one behind them, are a bf16 of v 2^-126 or an f16 of v 2^-14.
//
// A gated weight (paired) has in each tile 8 rows of gates and the 8 rows of the same outputs.
#pragma once
#include <cstdint>

#include "core/weight_format.h"

namespace inferd::cuda {

constexpr int32_t kMostExponent = 161;  // of e2m1

constexpr int32_t kTileRows16 = 16, kTileColumns128 = 128;
// What sums of products of bf16 weights are multiplied by, and what is stored for a scale of 1.
constexpr float kCodedUnit = 4294967296.f;                        // 2^32
constexpr float kCodedScale = 2535301200456458802993406410752.f;  // 2^101

struct CodedLayout {
  int32_t bits = 4;    // 4 or 8
  int32_t group = 32;  // columns of a scale: 16, 32, 64 or 128
  bool minima = false;
  bool float4 = false;  // e2m1 in groups of 32; else integers
  bool paired = false;
  int32_t rows = 0, cols = 0;  // of the weight

  constexpr int32_t code_bytes() const { return kTileRows16 * kTileColumns128 * bits / 8; }
  constexpr int32_t entry_bytes() const { return float4 ? 2 : minima ? 8 : 4; }
  constexpr int32_t scale_bytes() const { return kTileColumns128 / group * 8 * entry_bytes(); }
  constexpr int32_t tile_bytes() const { return code_bytes() + scale_bytes(); }
  constexpr int32_t across() const { return (cols + kTileColumns128 - 1) / kTileColumns128; }
  constexpr int32_t down() const {
    return paired ? (rows / 2 + 7) / 8 : (rows + kTileRows16 - 1) / kTileRows16;
  }
  constexpr int64_t bytes() const { return int64_t{down()} * across() * tile_bytes(); }

  // Where in the order of the tiles row `row` of the weight lies.
  constexpr int32_t place_of(int32_t row) const {
    if (!paired) return row;
    const int32_t half = rows / 2, up = row >= half ? 1 : 0, output = row - up * half;
    return output / 8 * kTileRows16 + up * 8 + output % 8;
  }
};

// Whether weights of the format are kept in tiles.
constexpr bool in_tiles(const WeightFormat& f) {
  return f.scaled && f.packing == Packing::kBlocks && f.block_rows == 1;
}

// Whether weights outside of experts are: products of experts alone know codes that are e2m1
// (experts/expert_tile.cuh).
constexpr bool in_plain_tiles(const WeightFormat& f) {
  return in_tiles(f) && f.codes != CodeType::kFloat4;
}

constexpr CodedLayout coded_layout(const WeightFormat& f, int64_t rows, int64_t cols, bool paired) {
  return {.bits = static_cast<int32_t>(code_bits(f.codes)),
          .group = f.block_cols,
          .minima = f.zeros == Zeros::kMinima,
          .float4 = f.codes == CodeType::kFloat4,
          .paired = paired,
          .rows = static_cast<int32_t>(rows),
          .cols = static_cast<int32_t>(cols)};
}

}  // namespace inferd::cuda
