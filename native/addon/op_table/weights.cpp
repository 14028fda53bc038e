// Table rows of loading: attributes | inputs -> outputs.
//
// load_slices: tensor rows cols vector? folder? names? piece_bytes | row_cuts[r + 1] col_cuts[c +
// 1]
//   -> out[rows, cols]
//   Loads the tensor [rows, cols], or [cols] with `vector`, as r * c parts: part (i, j) has rows
//   row_cuts[i] up to row_cuts[i + 1], and so its columns, and is stored there in `out`. From the
//   checkpoint in `folder`, or, without, dummy numbers. `names` is a map: "canonical=stored", one
//   rule a line.
#include <algorithm>
#include <sstream>

#include "addon/op_table/op_rows.h"
#include "core/error.h"
#include "core/half.h"
#include "engine/loading/loader.h"

namespace inferd {
namespace {

std::vector<int64_t> cuts(OpTestCall& c, const char* count, const char* name, int64_t last) {
  const int32_t n = c.size(count) + 1;
  const int32_t* at = c.host_indices(name, n, last + 1);
  if (at[0] != 0 || at[n - 1] != last || !std::is_sorted(at, at + n))
    throw Error(ErrorCode::kUsage, std::string("runOp: ") + name + " do not cut the whole");
  return {at, at + n};
}

NameMap name_map(const OpTestCall& c) {
  NameMap map;
  std::istringstream text(c.has_attr("names") ? c.text("names") : "");
  for (std::string rule; std::getline(text, rule);) {
    const size_t sign = rule.find('=');
    if (sign == std::string::npos) throw Error(ErrorCode::kUsage, "runOp: a rule without =");
    map.push_back({rule.substr(0, sign), rule.substr(sign + 1)});
  }
  return map;
}

// Rows of a part, at their place in the whole.
void place(const Tensor& out, const TensorSlice& slice, int64_t first, const Tensor& rows) {
  if (rows.cols() != slice.cols || first + rows.rows() > slice.rows)
    throw Error(ErrorCode::kUsage, "runOp: a part was given what is not of it");
  for (int64_t r = 0; r < rows.rows(); ++r) {
    float* to = out.as<float>() + (slice.first_row + first + r) * out.cols() + slice.first_col;
    for (int64_t k = 0; k < slice.cols; ++k)
      to[k] = load_f32(rows.data, rows.dtype, r * slice.cols + k);
  }
}

Napi::Object run_load_slices(OpTestCall& c) {
  const int64_t rows = c.size("rows"), cols = c.size("cols");
  const bool vector = c.size_or("vector", 0) != 0;
  const std::vector<int64_t> row_cuts = cuts(c, "num_rows", "row_cuts", rows);
  const std::vector<int64_t> col_cuts = cuts(c, "num_cols", "col_cuts", cols);
  const Tensor out = Tensor::matrix(c.new_array<float>(rows * cols), DType::kF32, rows, cols);
  c.output("out", out);
  const TensorSlice whole =
      TensorSlice::whole(c.text("tensor"), vector ? std::vector{cols} : std::vector{rows, cols});
  std::vector<WeightPart> parts;
  for (size_t i = 0; i + 1 < row_cuts.size(); ++i) {
    const TensorSlice band = whole.some_rows(row_cuts[i], row_cuts[i + 1] - row_cuts[i]);
    for (size_t j = 0; j + 1 < col_cuts.size(); ++j) {
      const TensorSlice part = band.some_cols(col_cuts[j], col_cuts[j + 1] - col_cuts[j]);
      parts.push_back(
          {.slice = part, .kept = kFormatF32, .store = [=](int64_t first, const Tensor& given) {
             place(out, part, first, given);
           }});
    }
  }
  const int32_t piece = c.size("piece_bytes");
  ModelConfig config;
  config.names = name_map(c);
  WeightLoader loader = c.has_attr("folder")
                            ? WeightLoader(parts, open_checkpoint(c.text("folder")), config)
                            : WeightLoader(parts, c.dtype("dtype"));
  return c.run([&] {
    while (!loader.progress().done) loader.load(piece);
  });
}

constexpr OpTest kTests[] = {{"load_slices", run_load_slices}};

}  // namespace

std::span<const OpTest> weight_tests() { return kTests; }

}  // namespace inferd
