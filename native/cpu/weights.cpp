// See weights.h. Panels are filled in tiles of all features of a panel by a few k, so that both
// sides stay within a few cache lines.
#include "cpu/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "core/float8.h"
#include "core/half.h"
#include "core/quant.h"
#include "cpu/scaled_weights.h"
#include "cpu/source_element.h"

namespace inferd::cpu {
namespace {

constexpr int64_t kTile = 32;

bool is_float(DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; }

// Element k of lane `lane` of a panel.
int64_t panel_index(const CpuWeight& w, int64_t lane, int64_t k) {
  if (!w.pairs) return k * w.panel_cols + lane;
  return (k / 2 * w.panel_cols + lane) * 2 + k % 2;
}

struct Lanes {
  char* panel;
  int64_t first, count;  // lanes of the panel
  const char* source;    // row of the first lane
  int64_t row_bytes;
};

// Same type on both sides: moves units of one element, or of one pair.
template <typename Unit>
void move_units(const CpuWeight& w, const Lanes& l, int64_t units) {
  for (int64_t base = 0; base < units; base += kTile) {
    const int64_t end = std::min(units, base + kTile);
    for (int64_t lane = 0; lane < l.count; ++lane) {
      const char* from = l.source + lane * l.row_bytes;
      char* to = l.panel + (l.first + lane) * static_cast<int64_t>(sizeof(Unit));
      for (int64_t u = base; u < end; ++u) {
        std::memcpy(to + u * w.panel_cols * static_cast<int64_t>(sizeof(Unit)),
                    from + u * static_cast<int64_t>(sizeof(Unit)), sizeof(Unit));
      }
    }
  }
}

// Of the formats without scales.
DType stored_dtype(const CpuWeight& w) {
  return w.kind == kF16Weights ? DType::kF16 : w.kind == kBF16Weights ? DType::kBF16 : DType::kF32;
}

void convert(const CpuWeight& w, const Lanes& l, DType from, int64_t first_k) {
  const DType to = stored_dtype(w);
  for (int64_t lane = 0; lane < l.count; ++lane) {
    const char* row = l.source + lane * l.row_bytes;
    for (int64_t k = first_k; k < w.cols; ++k) {
      store_f32(l.panel, to, panel_index(w, l.first + lane, k), source_f32(row, from, k));
    }
  }
}

// Quantizes the lanes block by block; layout: GemmTask in kernels.h.
void quantize_lanes(const CpuWeight& w, const Lanes& l, DType from) {
  const bool int4 = w.kind == kInt4Weights;
  const int64_t stored = int4 ? kQuantBlock / 2 : kQuantBlock;  // bytes of codes
  const int64_t block_bytes = weight_bytes(w.format, 1, kQuantBlock) * w.panel_cols;
  for (int64_t lane = 0; lane < l.count; ++lane) {
    const char* row = l.source + lane * l.row_bytes;
    char* block = l.panel;
    for (int64_t k0 = 0; k0 < w.cols; k0 += kQuantBlock, block += block_bytes) {
      float values[kQuantBlock];
      // What fills up the last block is not multiplied, and must not widen its range.
      for (int64_t k = 0; k < kQuantBlock; ++k)
        values[k] = source_f32(row, from, k0 + k < w.cols ? k0 + k : k0);
      QuantBlock q{};
      int4 ? quantize_int4(values, q) : quantize_int8(values, q);
      for (int64_t k = 0; k < stored; ++k) {
        const int64_t at = (k / w.group * w.panel_cols + l.first + lane) * w.group + k % w.group;
        const int code = int4 ? q.codes[k] | q.codes[k + stored] << 4 : q.codes[k];
        block[at] = static_cast<char>(code);
      }
      char* scales = block + stored * w.panel_cols + 2 * (l.first + lane);
      std::memcpy(scales, &q.scale, 2);
      if (int4) std::memcpy(scales + 2 * w.panel_cols, &q.min, 2);
    }
  }
}

// What codes are above weights.
int code_offset(CodeType codes) {
  return codes == CodeType::kInt8    ? 128
         : codes == CodeType::kSint6 ? 32
         : codes == CodeType::kSint4 ? 8
                                     : 0;
}

// Of the codes of kFloat4, which are twice the number.
uint8_t float4_of(int16_t twice) {
  uint8_t code = 0;
  while (code < 7 && kTwiceE2m1[code] != std::abs(twice)) ++code;
  return static_cast<uint8_t>(code | (twice < 0 ? 8 : 0));
}

// Blocks with the same scales, of which the codes come first.
int64_t blocks_of_run(const CpuWeight& w) {
  return std::max<int64_t>(1, w.format.block_cols / kCodedBlock);
}
int64_t block_code_bytes(const CpuWeight& w) {
  return kCodedBlock * code_bits(w.format.codes) / 8 * w.panel_cols;
}
// Where a block of a panel has its codes, and from there its scales.
int64_t codes_at(const CpuWeight& w, int64_t block) {
  const int64_t run = blocks_of_run(w);
  return block / run * weight_bytes(w.format, 1, run * kCodedBlock) * w.panel_cols +
         block % run * block_code_bytes(w);
}
int64_t scales_behind(const CpuWeight& w, int64_t block) {
  const int64_t run = blocks_of_run(w);
  return (run - block % run) * block_code_bytes(w);
}

// Codes of a block as bytes: as they are, or above their least; layout: GemmTask in kernels.h.
void write_block(const CpuWeight& w, const CodedBlock& b, char* panel, int64_t at, int64_t lane) {
  char* block = panel + codes_at(w, at);
  const int64_t bits = code_bits(w.format.codes);
  const int offset = code_offset(w.format.codes);
  uint8_t codes[kCodedBlock], bytes[kCodedBlock];
  const bool floats = w.format.codes == CodeType::kFloat4;
  for (int64_t k = 0; k < kCodedBlock; ++k)
    codes[k] = floats ? float4_of(b.codes[k]) : static_cast<uint8_t>(b.codes[k] + offset);
  constexpr int64_t kHalf = kCodedBlock / 2, kQuarter = kCodedBlock / 4;
  if (bits == 8) {
    std::memcpy(bytes, codes, sizeof(bytes));
  } else {
    for (int64_t k = 0; k < kHalf; ++k)
      bytes[k] = static_cast<uint8_t>((codes[k] & 15) | codes[k + kHalf] << 4);
    const auto high = [&](int64_t k) { return codes[k] >> 4 & 3; };
    for (int64_t k = 0; bits == 6 && k < kQuarter; ++k) {
      bytes[kHalf + k] =
          static_cast<uint8_t>(high(k) | high(k + kQuarter) << 2 | high(k + 2 * kQuarter) << 4 |
                               high(k + 3 * kQuarter) << 6);
    }
  }
  const int64_t stored = kCodedBlock * bits / 8;
  for (int64_t k = 0; k < stored; k += w.group)
    std::memcpy(block + k * w.panel_cols + lane * w.group, bytes + k, static_cast<size_t>(w.group));
  const int64_t parts = std::max<int64_t>(1, kCodedBlock / w.format.block_cols);
  char* scales = block + scales_behind(w, at);
  if (w.format.scales == DType::kI8) {
    scales[lane] = static_cast<char>(std::bit_cast<uint32_t>(b.scale[0]) >> 23);
    return;
  }
  const auto write = [&](int64_t row, float value) {
    const uint16_t half = f32_to_f16(value);
    std::memcpy(scales + 2 * (row * w.panel_cols + lane), &half, 2);
  };
  for (int64_t part = 0; part < parts; ++part) {
    write(part, b.scale[part]);
    if (w.format.zeros == Zeros::kMinima) write(parts + part, b.min[part]);
  }
}

// The reverse of write_block.
void read_block(const CpuWeight& w, const char* panel, int64_t at, int64_t lane, CodedBlock& b) {
  const char* block = panel + codes_at(w, at);
  const int64_t bits = code_bits(w.format.codes);
  const int offset = code_offset(w.format.codes);
  const auto byte_at = [&](int64_t k) {
    return static_cast<uint8_t>(block[(k / w.group * w.panel_cols + lane) * w.group + k % w.group]);
  };
  const int64_t whole = bits == 8 ? kCodedBlock : kCodedBlock / 2;
  for (int64_t k = 0; k < kCodedBlock; ++k) {
    int code = bits == 8 ? byte_at(k) : byte_at(k % whole) >> (4 * (k / whole)) & 15;
    if (bits == 6) code |= (byte_at(whole + k % 8) >> (2 * (k / 8)) & 3) << 4;
    b.codes[k] = w.format.codes == CodeType::kFloat4 ? kTwiceE2m1[code]
                                                     : static_cast<int16_t>(code - offset);
  }
  const int64_t parts = std::max<int64_t>(1, kCodedBlock / w.format.block_cols);
  const char* scales = block + scales_behind(w, at);
  const auto read = [&](int64_t row) {
    if (w.format.scales == DType::kI8)
      return std::bit_cast<float>(uint32_t{static_cast<uint8_t>(scales[lane])} << 23);
    uint16_t half;
    std::memcpy(&half, scales + 2 * (row * w.panel_cols + lane), 2);
    return f16_to_f32(half);
  };
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t part = half % parts;
    b.scale[half] = read(part);
    b.min[half] = w.format.zeros == Zeros::kMinima ? read(parts + part) : 0;
  }
}

// Rounds the lanes to e2m1 under the least powers of two that reach the largest of each block.
void round_to_float4(const CpuWeight& w, const Lanes& l, DType from) {
  for (int64_t lane = 0; lane < l.count; ++lane) {
    const char* row = l.source + lane * l.row_bytes;
    for (int64_t k0 = 0; k0 < w.cols; k0 += kCodedBlock) {
      const int64_t n = std::min(kCodedBlock, w.cols - k0);
      float largest = 0;
      for (int64_t k = 0; k < n; ++k)
        largest = std::max(largest, std::fabs(source_f32(row, from, k0 + k)));
      int exponent = 0;
      constexpr float kMost = 6;
      if (std::frexp(largest / kMost, &exponent) == 0.5f) --exponent;
      CodedBlock b{};
      b.scale[0] = b.scale[1] = std::ldexp(0.5f, exponent);
      for (int64_t k = 0; k < n; ++k) {
        const float twice = source_f32(row, from, k0 + k) / b.scale[0];
        for (const int8_t code : kTwiceE2m1) {
          if (std::fabs(twice - code) < std::fabs(twice - b.codes[k])) b.codes[k] = code;
        }
      }
      write_block(w, b, l.panel, k0 / kCodedBlock, l.first + lane);
    }
  }
}

void fill_lanes(const CpuWeight& w, const Lanes& l, DType from) {
  if (w.format == kCodedFloat4) return round_to_float4(w, l, from);
  if (is_coded(w.format)) {
    throw Error(ErrorCode::kUnsupported,
                "The CPU backend takes " + format_name(w.format) + " only as they are stored.");
  }
  if (w.in_scaled_rows()) {
    return fill_float8(w, {l.panel, l.first, l.count, l.source, l.row_bytes, from});
  }
  if (w.in_blocks()) return quantize_lanes(w, l, from);
  if (from != stored_dtype(w)) return convert(w, l, from, 0);
  if (w.pairs) {
    move_units<uint32_t>(w, l, w.cols / 2);
    return convert(w, l, from, w.cols / 2 * 2);
  }
  if (from == DType::kF32) return move_units<uint32_t>(w, l, w.cols);
  move_units<uint16_t>(w, l, w.cols);
}

// Rows of one order lie together.
void note_order(CpuWeight& w, int64_t first_row, int64_t rows, std::span<const int32_t> order) {
  if (order.empty()) return;
  if (static_cast<int64_t>(order.size()) != w.cols || first_row % w.panel_cols != 0)
    throw Error(ErrorCode::kUsage, "Rows with an order of columns begin inside of a panel.");
  if (!w.ordered.empty()) {
    CpuWeight::OrderedRows& last = w.ordered.back();
    if (last.first + last.count == first_row && std::ranges::equal(last.order, order)) {
      last.count += rows;
      return;
    }
  }
  w.ordered.push_back({first_row, rows, {order.begin(), order.end()}});
}

}  // namespace

std::unique_ptr<CpuWeight> new_weight(const Kernels& kernels, const WeightSpec& spec) {
  const int64_t rows = spec.rows, cols = spec.cols;
  if (const std::string refusal = refusal_of(spec.format, kWeightFormats); !refusal.empty())
    throw Error(ErrorCode::kUnsupported, "The CPU backend cannot multiply: " + refusal + ".");
  if (rows <= 0 || cols <= 0 || rows > int64_t{1} << 31 || cols > int64_t{1} << 31) {
    throw Error(ErrorCode::kBadModel,
                format("a weight of %lld x %lld is not possible", static_cast<long long>(rows),
                       static_cast<long long>(cols)));
  }
  auto w = std::make_unique<CpuWeight>(spec);
  const auto* known = std::find(std::begin(kWeightFormats), std::end(kWeightFormats), spec.format);
  w->kind = static_cast<WeightKind>(known - std::begin(kWeightFormats));
  w->panel_cols = kernels.panel_cols;
  w->pairs = kernels.bf16_pairs && w->kind == kBF16Weights;
  w->group = kernels.quant_group;
  // bf16 comes in pairs, blocks are whole.
  const int64_t unit = w->in_blocks() ? kCodedBlock : w->pairs ? 2 : 1;
  const int64_t bytes =
      w->in_scaled_rows()
          ? float8_panel_bytes(*w)
          : weight_bytes(spec.format, 1, (cols + unit - 1) / unit * unit) * w->panel_cols;
  w->panel_bytes = (bytes + 63) / 64 * 64;
  w->panels = (rows + w->panel_cols - 1) / w->panel_cols;
  w->memory = Buffer(static_cast<size_t>(w->panels * w->panel_bytes));
  return w;
}

void pack_rows(CpuWeight& w, int64_t first_row, const Tensor& source, ThreadPool& pool) {
  const int64_t rows = source.rows();
  if (source.dims != 2 || source.cols() != w.cols || first_row < 0 || rows < 0 ||
      rows > w.rows - first_row) {
    throw Error(ErrorCode::kBadModel,
                format("rows %lld.. of a weight [%lld, %lld] were given a tensor [%lld, %lld]",
                       static_cast<long long>(first_row), static_cast<long long>(w.rows),
                       static_cast<long long>(w.cols), static_cast<long long>(rows),
                       static_cast<long long>(source.dims == 2 ? source.cols() : 0)));
  }
  const bool codes = source.dtype == DType::kF8 && w.in_scaled_rows();
  if (!is_float(source.dtype) && !codes)
    throw Error(ErrorCode::kUnsupported, "weights in checkpoints must be f32, f16 or bf16");
  if (rows == 0) return;
  const int64_t row_bytes = source.stride[0] * dtype_bytes(source.dtype);
  const int64_t first = first_row / w.panel_cols, last = (first_row + rows - 1) / w.panel_cols;
  pool.parallel_for(last - first + 1, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = first + begin; p < first + end; ++p) {
      const int64_t low = std::max(first_row, p * w.panel_cols);
      const int64_t high = std::min(first_row + rows, (p + 1) * w.panel_cols);
      const Lanes lanes{
          .panel = static_cast<char*>(w.memory.data()) + p * w.panel_bytes,
          .first = low - p * w.panel_cols,
          .count = high - low,
          .source = static_cast<const char*>(source.data) + (low - first_row) * row_bytes,
          .row_bytes = row_bytes};
      fill_lanes(w, lanes, source.dtype);
    }
  });
}

void read_row(const CpuWeight& w, int64_t row, float* out) {
  const int64_t lane = row % w.panel_cols;
  const char* at = static_cast<const char*>(w.memory.data()) + row / w.panel_cols * w.panel_bytes;
  if (!w.in_blocks()) {
    const DType type = stored_dtype(w);
    for (int64_t k = 0; k < w.cols; ++k) out[k] = load_f32(at, type, panel_index(w, lane, k));
    return;
  }
  const auto ordered = std::find_if(w.ordered.begin(), w.ordered.end(), [&](const auto& o) {
    return row >= o.first && row < o.first + o.count;
  });
  const auto column = [&](int64_t place) -> int64_t {
    return ordered == w.ordered.end() ? place : ordered->order[static_cast<size_t>(place)];
  };
  CodedBlock block;
  for (int64_t k = 0; k < w.cols; k += kCodedBlock) {
    read_block(w, at, k / kCodedBlock, lane, block);
    for (int64_t i = 0; i < std::min(kCodedBlock, w.cols - k); ++i)
      out[column(k + i)] = block.weight(i);
  }
}

void pack_coded(CpuWeight& w, int64_t first_row, int64_t rows, const CodedRows& source,
                ThreadPool& pool) {
  if (first_row < 0 || rows < 0 || rows > w.rows - first_row)
    throw Error(ErrorCode::kBadModel, "A weight was given rows that it does not have.");
  if (rows == 0) return;
  note_order(w, first_row, rows, source.order());
  constexpr int64_t kPiece = 8;  // blocks of a row at a time, which stay near
  const int64_t blocks = (w.cols + kCodedBlock - 1) / kCodedBlock;
  const int64_t first = first_row / w.panel_cols, last = (first_row + rows - 1) / w.panel_cols;
  pool.parallel_for(last - first + 1, 1, [&](int64_t begin, int64_t end, int) {
    CodedBlock piece[kPiece];
    for (int64_t p = first + begin; p < first + end; ++p) {
      const int64_t low = std::max(first_row, p * w.panel_cols);
      const int64_t high = std::min(first_row + rows, (p + 1) * w.panel_cols);
      char* panel = static_cast<char*>(w.memory.data()) + p * w.panel_bytes;
      for (int64_t b = 0; b < blocks; b += kPiece) {
        const int64_t count = std::min(kPiece, blocks - b);
        for (int64_t row = low; row < high; ++row) {
          source.blocks(row - first_row, b, count, piece);
          for (int64_t i = 0; i < count; ++i)
            write_block(w, piece[i], panel, b + i, row - p * w.panel_cols);
        }
      }
    }
  });
}

}  // namespace inferd::cpu
