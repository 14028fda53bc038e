// Reads model weights in the safetensors format: one file, or shards named by
// model.safetensors.index.json. Files are mapped, not read; a tensor's bytes are touched only when
// the loader copies them. Format: https://huggingface.co/docs/safetensors
//
//   | u64 header length N | N bytes of JSON | data |
//   JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {...}}
//
// The header is believed only after it was checked against the file: see SafetensorsFile.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/json.h"
#include "core/checkpoint/mapped_file.h"

namespace inferd {

// One mapped file. The constructor checks: header length <= min(100 MB, file); known dtypes; rank
// <= 8; product of dimensions without overflow and equal to the byte range; ranges in order,
// without gap or overlap, ending with the file; no duplicate names; at most 200,000 tensors. Throws
// Error(kBadModel) with file and tensor named, Error(kIo) when the file cannot be read.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  void drop_pages() const { file_.drop_pages(); }

 private:
  StoredTensor read_entry(const std::string& name, const Json& entry, int64_t data_bytes) const;

  MappedFile file_;
  std::string path_;
  std::map<std::string, StoredTensor> tensors_;
};

// <folder>/model.safetensors, or else the shards of <folder>/model.safetensors.index.json, or the
// only index or file of another name, such as gptq_model-4bit-128g.safetensors; null when there is
// none. Throws as SafetensorsFile.
std::unique_ptr<Checkpoint> open_safetensors(const std::string& folder);

}  // namespace inferd
