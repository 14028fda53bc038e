// See scaled_weights.h.
#include "cpu/scaled_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/float8.h"
#include "cpu/source_element.h"

namespace inferd::cpu {
namespace {

constexpr int64_t kTile = 64;
constexpr float kLargest = 448;

static_assert(kFloat8Blocks.block_cols == kFloat8Block && kFloat8Groups.block_cols == kFloat8Block);

// Scales along a row.
int64_t runs_of(const CpuWeight& w) {
  return w.format.block_cols == 0 ? 1 : (w.cols + w.format.block_cols - 1) / w.format.block_cols;
}
int64_t code_bytes(const CpuWeight& w) { return (w.cols + 1) / 2 * 2 * w.panel_cols; }
// Scales of a run in a panel.
int64_t scales_across(const CpuWeight& w) { return w.format.block_rows == 1 ? w.panel_cols : 1; }

void write_scale(const CpuWeight& w, char* panel, int64_t run, int64_t lane, float scale) {
  char* to = panel + code_bytes(w) + (run * scales_across(w) + lane) * 4;
  std::memcpy(to, &scale, sizeof(scale));
}

void copy_codes(const CpuWeight& w, const Float8Lanes& l) {
  for (int64_t base = 0; base < w.cols; base += kTile) {
    const int64_t end = std::min(w.cols, base + kTile);
    for (int64_t lane = 0; lane < l.count; ++lane) {
      const char* from = l.source + lane * l.row_bytes;
      char* to = l.panel + l.first + lane;
      bool numbers = true;
      for (int64_t k = base; k < end; ++k) {
        numbers = numbers && (from[k] & 0x7f) != 0x7f;
        to[k * w.panel_cols] = from[k];
      }
      if (!numbers)
        throw Error(ErrorCode::kBadModel, "A weight in FP8 holds codes that are no numbers (NaN).");
    }
  }
}

// One row; the largest of each run becomes 448.
void quantize_row(const CpuWeight& w, const Float8Lanes& l, int64_t lane) {
  const char* row = l.source + (lane - l.first) * l.row_bytes;
  const int64_t run = w.format.block_cols == 0 ? w.cols : w.format.block_cols;
  for (int64_t first = 0; first < w.cols; first += run) {
    const int64_t end = std::min(w.cols, first + run);
    float largest = 0;
    bool finite = true;
    for (int64_t k = first; k < end; ++k) {
      const float size = std::fabs(source_f32(row, l.dtype, k));
      finite = finite && std::isfinite(size);
      largest = std::max(largest, size);
    }
    if (!finite) {
      throw Error(ErrorCode::kBadModel,
                  "A weight that is to be quantized holds numbers that are not finite.");
    }
    const float scale = largest / kLargest;
    for (int64_t k = first; k < end; ++k) {
      const float value = source_f32(row, l.dtype, k);
      const uint8_t code = scale > 0 ? f32_to_e4m3(value / scale) : uint8_t{0};
      l.panel[k * w.panel_cols + lane] = static_cast<char>(code);
    }
    write_scale(w, l.panel, first / run, lane, scale);
  }
}

}  // namespace

int64_t float8_panel_bytes(const CpuWeight& w) {
  return code_bytes(w) + runs_of(w) * scales_across(w) * static_cast<int64_t>(sizeof(float));
}

void fill_float8(const CpuWeight& w, const Float8Lanes& l) {
  if (l.dtype == DType::kF8) return copy_codes(w, l);
  if (w.format.block_rows != 1) {
    throw Error(ErrorCode::kUnsupported,
                "The CPU backend takes " + format_name(w.format) + " only as they are stored.");
  }
  for (int64_t lane = l.first; lane < l.first + l.count; ++lane) quantize_row(w, l, lane);
}

void fill_scales(CpuWeight& w, int64_t first_block, const Tensor& scales) {
  const int64_t runs = runs_of(w), step = w.format.block_rows;
  const int64_t blocks = (w.rows + step - 1) / step;
  if (!w.in_scaled_rows() || scales.dims != 2 || scales.dtype != DType::kF32 ||
      scales.cols() != runs || first_block < 0 || scales.rows() > blocks - first_block)
    throw Error(ErrorCode::kBadModel, "A weight was given scales that it does not have.");
  for (int64_t i = 0; i < scales.rows(); ++i) {
    const float* row = scales.as<float>() + i * scales.stride[0];
    const int64_t first = (first_block + i) * step, end = std::min(w.rows, first + step);
    // Of rows that share a scale a panel has one: its rows are in the same block.
    const int64_t each = step == 1 ? 1 : w.panel_cols;
    for (int64_t at = first; at < end; at += each) {
      char* panel = static_cast<char*>(w.memory.data()) + at / w.panel_cols * w.panel_bytes;
      for (int64_t run = 0; run < runs; ++run)
        write_scale(w, panel, run, step == 1 ? at % w.panel_cols : 0, row[run]);
    }
  }
}

}  // namespace inferd::cpu
