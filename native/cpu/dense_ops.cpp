// Ops on rows of activations: embedding, norms, linear, gated activation, gather. On the stream
// thread, spread over the pool.
#include <algorithm>
#include <cstring>
#include <span>

#include "core/error.h"
#include "core/quant.h"
#include "cpu/cpu_backend.h"

namespace inferd::cpu {
namespace {

// Bytes of weights that are worth handing to another thread (about 10 us of streaming).
constexpr int64_t kStreamWorth = 128 << 10;
// Panels of a chunk at most: a block of packed rows stays in the second-level cache while this many
// panels pass over it.
constexpr int64_t kMaxChunkPanels = 8;

// Of groups of rows that lie one after the other.
int64_t rows_of(std::span<const RowGroup> groups) {
  return groups.back().first + groups.back().count - groups.front().first;
}

}  // namespace

// Calls body(first row, rows) for the tiles of all groups, over the threads.
template <typename Body>
void CpuBackend::each_tile(std::span<const RowGroup> groups, int64_t tile_rows, int64_t row_cost,
                           Body&& body) {
  const auto tiles_of = [&](const RowGroup& g) { return (g.count + tile_rows - 1) / tile_rows; };
  int64_t tiles = 0;
  for (const RowGroup& g : groups) tiles += tiles_of(g);
  over_rows(tiles, tile_rows * row_cost, [&](int64_t begin, int64_t end, int) {
    int64_t before = 0;
    for (const RowGroup& g : groups) {
      const int64_t last = std::min(end - before, tiles_of(g));
      for (int64_t t = std::max<int64_t>(0, begin - before); t < last; ++t)
        body(g.first + t * tile_rows, std::min(tile_rows, g.count - t * tile_rows));
      before += tiles_of(g);
    }
  });
}

// `read` writes a row of the table.
template <typename Read>
void CpuBackend::embed_rows(const Tensor& out, int64_t table_rows, int32_t first_id,
                            const int32_t* ids, float scale, Read&& read) {
  const TraceScope scope(trace_, "embed");
  const int64_t cols = out.cols();
  over_rows(out.rows(), cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = int64_t{ids[i]} - first_id;
      if (row < 0 || row >= table_rows) {
        std::fill_n(row_of(out, i), cols, 0.f);
        continue;
      }
      read(row, row_of(out, i));
      if (scale != 1) kernels_.scale_cap(row_of(out, i), cols, scale, 0);
    }
  });
}

void CpuBackend::embed(Tensor out, const Tensor& table, int32_t first_id, const int32_t* ids,
                       float scale) {
  const int64_t row_bytes = table.stride[0] * dtype_bytes(table.dtype);
  const auto convert = kernels_.to_f32[static_cast<size_t>(table.dtype)];
  embed_rows(out, table.rows(), first_id, ids, scale, [&](int64_t row, float* to) {
    convert(to, table.as<const char>() + row * row_bytes, table.cols());
  });
}

void CpuBackend::embed_weight(Tensor out, const PackedWeight& table, int32_t first_id,
                              const int32_t* ids, float scale) {
  const auto& weight = static_cast<const CpuWeight&>(table);
  embed_rows(out, weight.rows, first_id, ids, scale,
             [&](int64_t row, float* to) { read_row(weight, row, to); });
}

void CpuBackend::rms_norm(Tensor out, const Tensor& x, const float* weight, float eps) {
  const TraceScope scope(trace_, "rms_norm");
  over_rows(x.rows(), 2 * x.cols(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      kernels_.rms_norm(row_of(out, i), row_of(x, i), weight, x.cols(), eps);
  });
}

void CpuBackend::add(Tensor inout, const Tensor& x, float scale) {
  const TraceScope scope(trace_, "add");
  over_rows(x.rows(), x.cols(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      kernels_.add(row_of(inout, i), row_of(x, i), x.cols(), scale);
  });
}

void CpuBackend::add_rms_norm(Tensor out, Tensor inout, const Tensor& x, const float* weight,
                              float eps) {
  const TraceScope scope(trace_, "add_rms_norm");
  over_rows(x.rows(), 3 * x.cols(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      kernels_.add(row_of(inout, i), row_of(x, i), x.cols(), 1);
      kernels_.rms_norm(row_of(out, i), row_of(inout, i), weight, x.cols(), eps);
    }
  });
}

void CpuBackend::gated_mul(Tensor out, const Tensor& gate_up, Gate gate) {
  const TraceScope scope(trace_, "gated_mul");
  const int64_t cols = gate_up.cols() / 2;
  const auto kernel = kernels_.gated_mul[static_cast<size_t>(gate)];
  over_rows(out.rows(), 8 * cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* g = row_of(gate_up, i);
      kernel(row_of(out, i), g, g + cols, cols);
    }
  });
}

void CpuBackend::cap_logits(Tensor logits, float scale, float cap) {
  const TraceScope scope(trace_, "cap_logits");
  over_rows(logits.rows(), 8 * logits.cols(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      kernels_.scale_cap(row_of(logits, i), logits.cols(), scale, cap);
  });
}

void CpuBackend::gather_rows(Tensor out, const Tensor& x, const int32_t* rows, int32_t n) {
  const TraceScope scope(trace_, "gather_rows");
  const auto bytes = static_cast<size_t>(x.cols()) * sizeof(float);
  for (int32_t i = 0; i < n; ++i) std::memcpy(row_of(out, i), row_of(x, rows[i]), bytes);
}

void CpuBackend::copy_rows(Tensor out, const Tensor& x) {
  const TraceScope scope(trace_, "copy_rows");
  const auto bytes = static_cast<size_t>(x.cols()) * sizeof(float);
  for (int64_t i = 0; i < x.rows(); ++i) std::memcpy(row_of(out, i), row_of(x, i), bytes);
}

void CpuBackend::sum_rows(Tensor sums, const Tensor& x, const RowSum* entries, int32_t n) {
  const TraceScope scope(trace_, "sum_rows");
  const int64_t cols = x.cols();
  over_rows(n, x.rows() * cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const RowSum& e = entries[i];
      float* sum = row_of(sums, e.to);
      if (e.fresh != 0) std::fill_n(sum, cols, 0.f);
      for (int64_t r = e.first; r < int64_t{e.first} + e.count; ++r)
        kernels_.add(sum, row_of(x, r), cols, 1);
    }
  });
}

// Rows in tiles of tile_rows, inputs outermost inside a tile: [tile][k][row of the tile]; no tile
// has rows of two groups. One row alone is used where it lies.
const float* CpuBackend::pack_activations(const Tensor& x, std::span<const RowGroup> groups) {
  const int64_t tile = kernels_.tile_rows, cols = x.cols();
  const int64_t rows = rows_of(groups), first_row = groups.front().first;
  if (rows == 1) return row_of(x, first_row);
  auto* packed = static_cast<float*>(packed_rows_.data());
  each_tile(groups, tile, 2 * cols, [&](int64_t first, int64_t count) {
    pack_tile(packed + (first - first_row) * cols, row_of(x, first), x.stride[0], count, cols);
  });
  return packed;
}

// The same rows quantized, code_rows at a time.
const float* CpuBackend::pack_codes(const Tensor& x, std::span<const RowGroup> groups) {
  const int64_t cols = x.cols(), first_row = groups.front().first;
  auto* packed = static_cast<char*>(packed_rows_.data());
  const int64_t row_bytes = quant_blocks(cols) * kCodeBlockBytes;
  each_tile(groups, kernels_.code_rows, 2 * cols, [&](int64_t first, int64_t count) {
    kernels_.quantize_tile(packed + (first - first_row) * row_bytes, row_of(x, first), x.stride[0],
                           count, cols);
  });
  return static_cast<const float*>(packed_rows_.data());
}

// One op after the other: beside the product the others cost little.
void CpuBackend::linear(const LinearArgs& args) {
  if (args.norm != nullptr) rms_norm(args.norm->scratch, args.x, args.norm->weight, args.norm->eps);
  const Tensor& y = args.epilogue == Epilogue::kStore ? args.out : args.scratch;
  const Tensor& x = args.norm == nullptr ? args.x : args.norm->scratch;
  multiply(y, x, *args.weight, args.bias);
  if (args.bank != nullptr) add_adapters(y, x, *args.bank, *args.adapters);
  if (args.epilogue == Epilogue::kAdd) add(args.out, y, 1);
  if (args.epilogue == Epilogue::kGated) gated_mul(args.out, y, args.gate);
}

void CpuBackend::multiply(const Tensor& out, const Tensor& x, const PackedWeight& weight,
                          const float* bias) {
  const TraceScope scope(trace_, "linear");
  const auto& w = static_cast<const CpuWeight&>(weight);
  if (x.cols() != w.cols || out.cols() != w.rows) {
    throw Error(ErrorCode::kUsage,
                format("linear of [%lld, %lld] got %lld inputs and %lld outputs",
                       static_cast<long long>(w.rows), static_cast<long long>(w.cols),
                       static_cast<long long>(x.cols()), static_cast<long long>(out.cols())));
  }
  int64_t first = 0;
  for (const CpuWeight::OrderedRows& o : w.ordered) {
    if (o.first > first) multiply_rows(out, x, w, bias, first, o.first - first, {});
    multiply_rows(out, x, w, bias, o.first, o.count, o.order);
    first = o.first + o.count;
  }
  if (first < w.rows) multiply_rows(out, x, w, bias, first, w.rows - first, {});
}

void CpuBackend::multiply_rows(const Tensor& out, const Tensor& x, const CpuWeight& w,
                               const float* bias, int64_t first, int64_t count,
                               std::span<const int32_t> order) {
  const Tensor part = columns(out, first, count);
  const float* part_bias = bias == nullptr ? nullptr : bias + first;
  for (int64_t row = 0; row < x.rows(); row += kMaxPackedRows) {
    const int64_t rows = std::min(kMaxPackedRows, x.rows() - row);
    const Tensor from = some_rows(x, row, rows), to = some_rows(part, row, rows);
    const RowGroup all{0, rows, first, part_bias};
    if (order.empty()) {
      multiply_groups(to, from, w, count, {&all, 1});
      continue;
    }
    const Tensor sorted = Tensor::matrix(ordered_rows_.data(), DType::kF32, rows, w.cols);
    over_rows(rows, w.cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t k = 0; k < w.cols; ++k)
          row_of(sorted, r)[k] = row_of(from, r)[order[static_cast<size_t>(k)]];
    });
    multiply_groups(to, sorted, w, count, {&all, 1});
  }
}

void CpuBackend::multiply_groups(const Tensor& out, const Tensor& x, const CpuWeight& w,
                                 int64_t outs, std::span<const RowGroup> groups) {
  const bool codes = w.in_blocks() && kernels_.quantize_tile;
  const auto kernel = kernels_.gemm[w.kind];
  const auto* packed =
      reinterpret_cast<const char*>(codes ? pack_codes(x, groups) : pack_activations(x, groups));
  const int64_t packed_bytes =
      codes ? quant_blocks(w.cols) * kCodeBlockBytes : w.cols * static_cast<int64_t>(sizeof(float));
  const auto count = static_cast<int64_t>(groups.size());
  const int64_t panels = (outs + w.panel_cols - 1) / w.panel_cols;
  const int64_t rows = std::max<int64_t>(1, rows_of(groups) / count);  // of a group, about
  // Even chunks, four a thread, but none so small that the hand-over shows. Multiples of 4 keep
  // four panels side by side.
  const int64_t worth = (kStreamWorth + w.panel_bytes * rows - 1) / (w.panel_bytes * rows);
  int64_t chunk = (panels * count + 4 * pool_.size() - 1) / (4 * pool_.size());
  chunk = std::max(worth, rows == 1 ? (chunk + 3) / 4 * 4 : std::min(chunk, kMaxChunkPanels));
  const int64_t chunks = (panels + chunk - 1) / chunk;
  const int64_t grain = chunks > 1 ? 1 : std::max<int64_t>(1, worth / panels);
  pool_.parallel_for(count * chunks, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const RowGroup& group = groups[static_cast<size_t>(i / chunks)];
      const int64_t first = i % chunks * chunk;
      kernel({.panels = static_cast<const char*>(w.memory.data()) +
                        group.first_weight_row / w.panel_cols * w.panel_bytes,
              .panel_bytes = w.panel_bytes,
              .first_panel = first,
              .num_panels = std::min(chunk, panels - first),
              .packed = reinterpret_cast<const float*>(
                  packed + (group.first - groups.front().first) * packed_bytes),
              .rows = group.count,
              .cols = w.cols,
              .out = row_of(out, group.first),
              .out_stride = out.stride[0],
              .outs = outs,
              .bias = group.bias});
    }
  });
}

}  // namespace inferd::cpu
