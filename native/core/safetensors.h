// Reads model weights in the safetensors format: one file, or shards named by
// model.safetensors.index.json. Files are mapped, not read; a tensor's bytes are touched only when
// the loader copies them. Format: https://huggingface.co/docs/safetensors
//
//   | u64 header length N | N bytes of JSON | data |
//   JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {...}}
//
// The header is believed only after it was checked against the file: see SafetensorsFile.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/mapped_file.h"
#include "core/tensor.h"

namespace inferd {

// One tensor of a checkpoint; `data` points into the mapped file and may be unaligned.
struct StoredTensor {
  std::string dtype_name;  // as in the file: "BF16", "F32", ...
  DType dtype = DType::kF32;
  bool floating = false;  // dtype is F32, F16 or BF16
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

// One mapped file. The constructor checks: header length <= min(100 MB, file); known dtypes; rank
// <= 8; product of dimensions without overflow and equal to the byte range; ranges in order,
// without gap or overlap, ending with the file; no duplicate names; at most 200,000 tensors. Throws
// Error(kBadModel) with file and tensor named, Error(kIo) when the file cannot be read.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

 private:
  StoredTensor read_entry(const std::string& name, const Json& entry, int64_t data_bytes) const;

  MappedFile file_;
  std::string path_;
  std::map<std::string, StoredTensor> tensors_;
};

// All tensors of a model folder.
class Checkpoint {
 public:
  // Opens <folder>/model.safetensors, or else the shards of <folder>/model.safetensors.index.json.
  // Throws as SafetensorsFile.
  explicit Checkpoint(const std::string& folder);
  // Null when there is none of that name.
  const StoredTensor* find(const std::string& name) const;

 private:
  void open_shards(const std::string& folder, const std::string& index_path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const StoredTensor*> tensors_;
};

// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace inferd
