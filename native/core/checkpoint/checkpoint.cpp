// See checkpoint.h.
#include "core/checkpoint/checkpoint.h"

#include <utility>

#include "core/checkpoint/gguf.h"
#include "core/checkpoint/safetensors.h"
#include "core/error.h"

namespace inferd {
namespace {

// Null when the path holds nothing in the format.
using OpenFormat = std::unique_ptr<Checkpoint> (*)(const std::string& path);
constexpr OpenFormat kFormats[] = {open_gguf, open_safetensors};

bool inside(int64_t first, int64_t count, int64_t whole) {
  return first >= 0 && count >= 0 && first <= whole && count <= whole - first;
}

}  // namespace

std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path) {
  for (const OpenFormat open : kFormats) {
    if (std::unique_ptr<Checkpoint> checkpoint = open(path)) return checkpoint;
  }
  throw Error(ErrorCode::kIo, format("%s holds neither model.safetensors nor "
                                     "model.safetensors.index.json and is no *.gguf file; inferd "
                                     "reads no other weight format.",
                                     path.c_str()));
}

TensorSlice TensorSlice::whole(std::string name, std::vector<int64_t> shape) {
  TensorSlice all{.name = std::move(name), .shape = std::move(shape)};
  all.rows = all.stored_rows();
  all.cols = all.stored_cols();
  return all;
}

TensorSlice TensorSlice::some_rows(int64_t first, int64_t count) const {
  TensorSlice part = *this;
  part.first_row += first;
  part.rows = count;
  return part;
}

TensorSlice TensorSlice::some_cols(int64_t first, int64_t count) const {
  TensorSlice part = *this;
  part.first_col += first;
  part.cols = count;
  return part;
}

bool TensorSlice::valid() const {
  return (shape.size() == 1 || shape.size() == 2) && inside(first_row, rows, stored_rows()) &&
         inside(first_col, cols, stored_cols());
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace inferd
