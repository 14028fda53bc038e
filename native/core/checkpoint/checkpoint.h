// The weights of a model folder or file, whatever the format of its files: tensors by name. The
// loader reads them through this; a format is one implementation and a line in checkpoint.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/name_map.h"
#include "core/tensor.h"

namespace inferd {

struct BlockType;

// One tensor of a checkpoint; `data` points into the mapped file and may be unaligned.
struct StoredTensor {
  std::string dtype_name;  // as in the file: "BF16", "F32", ...
  DType dtype = DType::kF32;
  bool floating = false;  // dtype is F32, F16 or BF16
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  const BlockType* blocks = nullptr;  // of GGUF: rows are blocks of this type, and `dtype` nothing
};

// How a checkpoint says what Hugging Face's checkpoints say otherwise.
struct Dialect {
  NameMap names{};
  bool norms_hold_offset = false;  // what models add to the weights of norms is in them already
  // Rows of a head of q and k that are stored in pairs of what is rotated together; 0: they are in
  // two halves.
  int64_t paired_head_rows = 0;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  // Null when there is none of that name; else it lives as long as this.
  virtual const StoredTensor* find(const std::string& name) const = 0;
  virtual Dialect dialect() const { return {}; }
  // Gives back the memory of what has been read of the files, which stay open.
  virtual void drop_pages() const = 0;
};

// Opens what `path`, a folder or a file, holds. Throws Error(kIo) when that is no known format, and
// as the format does.
std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path);

// Rows [first_row, first_row + rows) and columns [first_col, first_col + cols) of a tensor in a
// checkpoint. A vector is one row.
//
//   shape [6, 8]   . . . . . . . .
//                  . . # # # . . .   first_row 1, rows 2
//                  . . # # # . . .   first_col 2, cols 3
//                  . . . . . . . .   ...
struct TensorSlice {
  std::string name;            // canonical: see name_map.h
  std::vector<int64_t> shape;  // of the whole tensor: [rows, cols] or [cols]
  int64_t first_row = 0, rows = 0, first_col = 0, cols = 0;

  static TensorSlice whole(std::string name, std::vector<int64_t> shape);
  // A part of this part.
  TensorSlice some_rows(int64_t first, int64_t count) const;
  TensorSlice some_cols(int64_t first, int64_t count) const;

  int64_t stored_rows() const { return shape.size() == 2 ? shape[0] : 1; }
  int64_t stored_cols() const { return shape.back(); }
  // It lies inside of the shape, which has one or two dimensions.
  bool valid() const;
};

// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace inferd
