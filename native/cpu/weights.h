// Linear weights in panels, the layout the matrix kernels stream (see GemmTask in kernels.h).
// Filled at load time, then read-only.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/coded_block.h"
#include "cpu/isa/kernels.h"
#include "cpu/runtime/memory.h"
#include "cpu/runtime/threads.h"

namespace inferd::cpu {

constexpr std::array<WeightFormat, kWeightKinds> weight_formats() {
  std::array<WeightFormat, kWeightKinds> formats{};
  formats[kF32Weights] = kFormatF32;
  formats[kF16Weights] = kFormatF16;
  formats[kBF16Weights] = kFormatBF16;
  formats[kInt8Weights] = kFormatInt8;
  formats[kInt4Weights] = kFormatInt4;
  formats[kCodedInt8Weights] = kCodedInt8;
  formats[kCodedInt4Weights] = kCodedInt4;
  formats[kCodedInt4MinimaWeights] = kCodedInt4Minima;
  formats[kCodedInt8HalvesWeights] = kCodedInt8Halves;
  formats[kCodedInt6MinimaWeights] = kCodedInt6Minima;
  formats[kCodedInt6HalvesWeights] = kCodedInt6Halves;
  formats[kFloat8RowsWeights] = kFloat8Rows;
  formats[kFloat8BlocksWeights] = kFloat8Blocks;
  formats[kFloat8GroupsWeights] = kFloat8Groups;
  formats[kCodedFloat4Weights] = kCodedFloat4;
  formats[kCodedFloat4HalvesWeights] = kCodedFloat4Halves;
  formats[kCodedInt8By64Weights] = longer(kCodedInt8, 64);
  formats[kCodedInt8By128Weights] = longer(kCodedInt8, 128);
  formats[kCodedInt4By64Weights] = longer(kCodedInt4, 64);
  formats[kCodedInt4By128Weights] = longer(kCodedInt4, 128);
  formats[kCodedInt4MinimaBy64Weights] = longer(kCodedInt4Minima, 64);
  formats[kCodedInt4MinimaBy128Weights] = longer(kCodedInt4Minima, 128);
  return formats;
}
// Indexed by WeightKind.
constexpr std::array<WeightFormat, kWeightKinds> kWeightFormats = weight_formats();

struct CpuWeight final : PackedWeight {
  using PackedWeight::PackedWeight;

  WeightKind kind = kF32Weights;
  Buffer memory;
  int32_t panel_cols = 0;
  bool pairs = false;  // two k in one 32-bit word
  int32_t group = 1;   // inputs side by side in quantized blocks
  int64_t panel_bytes = 0;
  int64_t panels = 0;

  // Rows whose codes lie in another order of columns than the input does, from the first on. All
  // others are in place.
  struct OrderedRows {
    int64_t first, count;        // multiples of panel_cols, but for the last rows
    std::vector<int32_t> order;  // CodedRows::order
  };
  std::vector<OrderedRows> ordered;

  // Of 8-bit floats with a table of scales behind the codes of each panel.
  bool in_scaled_rows() const { return is_scaled_rows(format); }
  // Of codes in blocks; its products may take quantized rows.
  bool in_blocks() const { return format.packing == Packing::kBlocks; }
};

// A zeroed weight. @throws Error(kUnsupported) for formats that are refused.
std::unique_ptr<CpuWeight> new_weight(const Kernels& kernels, const WeightSpec& spec);

// Converts or quantizes, and repacks `source` [n, cols], f32, f16 or bf16, or codes in which the
// weight is kept, into output features [first_row, first_row + n). @throws Error(kBadModel) on a
// wrong shape, and on codes that are no numbers.
void pack_rows(CpuWeight& weight, int64_t first_row, const Tensor& source, ThreadPool& pool);
// The same of `rows` rows that are codes already, into a weight of a coded format.
void pack_coded(CpuWeight& weight, int64_t first_row, int64_t rows, const CodedRows& source,
                ThreadPool& pool);

// Row `row` as floats, [cols], of a weight without scales or of a coded format.
void read_row(const CpuWeight& weight, int64_t row, float* out);

}  // namespace inferd::cpu
