// How the numbers of a weight matrix are written down, as data: models choose a format for each
// weight, backends say which they take, and whoever counts bytes asks the format.
//
// Most formats hold a small code for each weight, and a scale for each block of weights. Weight
// [r][c] belongs to block [r / block_rows][c / block_cols]. With its code q, and the scale s and
// the zero z of its block, it stands for
//
//   w = q            without scales
//   w = s q          Zeros::kNone
//   w = s q + z      Zeros::kMinima
//   w = s (q - z)    Zeros::kPoints
#pragma once
#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"
#include "core/tensor.h"

namespace inferd {

enum class CodeType : int32_t {
  kF32,  // the first three are the weights themselves
  kF16,
  kBF16,
  kInt8,    // -127..127
  kUint4,   // 0..15
  kSint4,   // -8..7
  kFloat8,  // e4m3
  kUint6,   // 0..63
  kSint6,   // -32..31
  kFloat4,  // e2m1: 0 .5 1 1.5 2 3 4 6 and their negatives
};

enum class Zeros : int32_t {
  kNone,
  kMinima,  // of the type of the scales
  kPoints,  // of the type of the codes
};

enum class Packing : int32_t {
  kRows,    // the codes in rows; scales and zeros are tables of their own
  kBlocks,  // block after block: its codes, its scale, its zero; a last block is filled up
};

struct WeightFormat {
  CodeType codes = CodeType::kF32;
  // The rest is of formats with scales.
  bool scaled = false;
  DType scales = DType::kF32;
  int32_t block_rows = 0, block_cols = 0;  // 0: all rows, all columns
  Zeros zeros = Zeros::kNone;
  Packing packing = Packing::kRows;

  auto operator<=>(const WeightFormat&) const = default;
};

constexpr WeightFormat kFormatF32{CodeType::kF32};
constexpr WeightFormat kFormatF16{CodeType::kF16};
constexpr WeightFormat kFormatBF16{CodeType::kBF16};
// What core/quant.h makes of plain weights.
constexpr WeightFormat kFormatInt8{.codes = CodeType::kInt8,
                                   .scaled = true,
                                   .scales = DType::kBF16,
                                   .block_rows = 1,
                                   .block_cols = 32,
                                   .packing = Packing::kBlocks};
constexpr WeightFormat kFormatInt4{.codes = CodeType::kUint4,
                                   .scaled = true,
                                   .scales = DType::kBF16,
                                   .block_rows = 1,
                                   .block_cols = 32,
                                   .zeros = Zeros::kMinima,
                                   .packing = Packing::kBlocks};

// What checkpoints that are quantized are kept in, where a backend has products for it: the codes
// of the checkpoint with the scales of each block, rounded to f16 where they have more bits.
constexpr WeightFormat coded_format(CodeType codes, int32_t block_cols, Zeros zeros) {
  return {.codes = codes,
          .scaled = true,
          .scales = DType::kF16,
          .block_rows = 1,
          .block_cols = block_cols,
          .zeros = zeros,
          .packing = Packing::kBlocks};
}
constexpr WeightFormat kCodedInt8 = coded_format(CodeType::kInt8, 32, Zeros::kNone);
constexpr WeightFormat kCodedInt4 = coded_format(CodeType::kSint4, 32, Zeros::kNone);
constexpr WeightFormat kCodedInt4Minima = coded_format(CodeType::kUint4, 32, Zeros::kMinima);
// The same with a scale for more columns.
constexpr WeightFormat longer(WeightFormat f, int32_t block_cols) {
  f.block_cols = block_cols;
  return f;
}
// For how many columns codes have a scale, of groups of `columns` that have one in a file.
constexpr int32_t coded_run(int64_t columns) {
  return columns % 128 == 0 ? 128 : columns % 64 == 0 ? 64 : 32;
}
// All others fit in it.
constexpr WeightFormat kCodedInt8Halves = coded_format(CodeType::kInt8, 16, Zeros::kMinima);

// Of 5 and 6 bits, in less room than the one above.
constexpr WeightFormat kCodedInt6Minima = coded_format(CodeType::kUint6, 32, Zeros::kMinima);
constexpr WeightFormat kCodedInt6Halves = coded_format(CodeType::kSint6, 16, Zeros::kNone);

// MXFP4: the scales are powers of two, of which their 8-bit exponents are kept (e8m0).
constexpr WeightFormat kCodedFloat4{.codes = CodeType::kFloat4,
                                    .scaled = true,
                                    .scales = DType::kI8,
                                    .block_rows = 1,
                                    .block_cols = 32,
                                    .packing = Packing::kBlocks};

// NVFP4, with each scale already divided by that of the tensor.
constexpr WeightFormat kCodedFloat4Halves = coded_format(CodeType::kFloat4, 16, Zeros::kNone);

constexpr bool is_coded(const WeightFormat& f) {
  return f.scaled && f.packing == Packing::kBlocks &&
         (f.scales == DType::kF16 || f.codes == CodeType::kFloat4);
}

// Rows of 8-bit codes with a table of scales, as checkpoints store them and tensor cores multiply
// them.
constexpr WeightFormat scaled_rows(CodeType codes, int32_t block_rows, int32_t block_cols) {
  return {.codes = codes,
          .scaled = true,
          .scales = DType::kF32,
          .block_rows = block_rows,
          .block_cols = block_cols,
          .packing = Packing::kRows};
}
constexpr WeightFormat kFloat8Rows = scaled_rows(CodeType::kFloat8, 1, 0);
constexpr WeightFormat kFloat8Blocks = scaled_rows(CodeType::kFloat8, 128, 128);
// Of blocks that rows of several matrices, one below the other, would cut: a scale for each row.
constexpr WeightFormat kFloat8Groups = scaled_rows(CodeType::kFloat8, 1, 128);
constexpr WeightFormat kInt8Rows = scaled_rows(CodeType::kInt8, 1, 0);

constexpr bool is_scaled_rows(const WeightFormat& f) {
  return f.scaled && f.packing == Packing::kRows && f.scales == DType::kF32 &&
         (f.codes == CodeType::kFloat8 || f.codes == CodeType::kInt8);
}

// One in which weights of both formats can be kept without another rounding that counts.
constexpr WeightFormat common_format(const WeightFormat& a, const WeightFormat& b,
                                     const WeightFormat& plain) {
  if (a == b) return a;
  if (is_coded(a) && is_coded(b)) return kCodedInt8Halves;
  const bool floats = a.codes == CodeType::kFloat8 && b.codes == CodeType::kFloat8;
  return floats && is_scaled_rows(a) && is_scaled_rows(b) ? kFloat8Groups : plain;
}

// Of f32, f16 or bf16 weights as they are.
constexpr WeightFormat plain_format(DType t) {
  return t == DType::kF16 ? kFormatF16 : t == DType::kBF16 ? kFormatBF16 : kFormatF32;
}

constexpr int64_t code_bits(CodeType t) {
  switch (t) {
    case CodeType::kF32:
      return 32;
    case CodeType::kF16:
    case CodeType::kBF16:
      return 16;
    case CodeType::kInt8:
    case CodeType::kFloat8:
      return 8;
    case CodeType::kUint6:
    case CodeType::kSint6:
      return 6;
    case CodeType::kUint4:
    case CodeType::kSint4:
    case CodeType::kFloat4:
      return 4;
  }
  return 0;
}

// Bytes of a weight of rows x cols: codes, scales and zeros.
constexpr int64_t weight_bytes(const WeightFormat& f, int64_t rows, int64_t cols) {
  const int64_t bits = code_bits(f.codes);
  if (!f.scaled) return rows * cols * bits / 8;
  const int64_t across = f.block_cols == 0 ? 1 : (cols + f.block_cols - 1) / f.block_cols;
  const int64_t down = f.block_rows == 0 ? 1 : (rows + f.block_rows - 1) / f.block_rows;
  const bool filled_up = f.packing == Packing::kBlocks && f.block_cols > 0;
  const int64_t row_codes = filled_up ? across * f.block_cols : cols;
  const int64_t scale_bits = 8 * dtype_bytes(f.scales);
  const int64_t zero_bits = f.zeros == Zeros::kMinima   ? scale_bits
                            : f.zeros == Zeros::kPoints ? bits
                                                        : 0;
  return rows * ((row_codes * bits + 7) / 8) + (across * down * (scale_bits + zero_bits) + 7) / 8;
}

// "int4"; of formats without a name of their own what they are: "fp8 with f32 scales of 128 x 128
// weights".
inline std::string format_name(const WeightFormat& f) {
  constexpr const char* kCodes[] = {"f32",  "f16", "bf16", "int8", "int4",
                                    "int4", "fp8", "int6", "int6", "fp4"};
  const std::string codes = kCodes[static_cast<int32_t>(f.codes)];
  if (!f.scaled || f == kFormatInt8 || f == kFormatInt4) return codes;
  const auto count = [](int32_t n) { return n == 0 ? std::string("all") : std::to_string(n); };
  const char* scales = f.scales == DType::kF32   ? "f32"
                       : f.scales == DType::kF16 ? "f16"
                       : f.scales == DType::kI8  ? "8-bit"
                                                 : "bf16";
  const char* zeros = f.zeros == Zeros::kMinima   ? " and minima"
                      : f.zeros == Zeros::kPoints ? " and zero points"
                                                  : "";
  return format("%s with %s scales%s of %s x %s weights", codes.c_str(), scales, zeros,
                count(f.block_rows).c_str(), count(f.block_cols).c_str());
}

// What a backend that keeps the formats of `kept` says to another: "weights are fp8, and it keeps
// f16 and bf16"; "" to one of them.
inline std::string refusal_of(const WeightFormat& format, std::span<const WeightFormat> kept) {
  std::string names;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (format == kept[i]) return "";
    names += (i == 0 ? "" : i + 1 == kept.size() ? " and " : ", ") + format_name(kept[i]);
  }
  return "weights are " + format_name(format) + ", and it keeps " + names;
}

// Where a weight lies, as kernels get it: pointers to memory of the device, of which scales and
// zeros are null where the format has none, or has them beside the codes.
struct WeightView {
  WeightFormat format;
  const void* codes = nullptr;
  const void* scales = nullptr;
  const void* zeros = nullptr;
};

// What a tensor of a checkpoint is to a weight.
enum class WeightRole : int32_t { kCodes, kScales, kZeros };

}  // namespace inferd
