// Reads model weights in the GGUF format, versions 2 and 3: one file, or the parts of a split one.
// Files are mapped, not read; of the metadata only what placing tensors needs is kept (the rest is
// config/gguf's).
//
//   "GGUF" | u32 version | u64 tensors | u64 pairs | pairs: name, u32 type, value
//   | tensors: name, u32 dims, u64 [dims], u32 type, u64 offset | padding | data
//
// A matrix of N rows of K says [K, N]. Everything is believed only after it was checked against the
// file: counts against the bytes that are left, before anything is allocated by them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/mapped_file.h"

namespace inferd {

// One mapped file. Throws Error(kBadModel) with file and tensor named, Error(kIo) when the file
// cannot be read, Error(kUnsupported) for types of tensors that are not read here.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  void drop_pages() const { file_.drop_pages(); }
  // general.architecture, or "".
  const std::string& architecture() const { return architecture_; }
  // Of metadata keys with whole numbers, or with a list of the same one for each layer; `fallback`
  // where it is not there.
  int64_t integer(const std::string& key, int64_t fallback) const;

 private:
  void read_pairs(class GgufCursor& at, uint64_t count);
  void read_tensors(class GgufCursor& at, uint64_t count);
  void place(int64_t data_start);

  MappedFile file_;
  std::string path_, architecture_;
  std::map<std::string, int64_t> integers_;
  std::map<std::string, StoredTensor> tensors_;
};

// `path` names a file that ends in .gguf; null when it does not. Of a split file, "-00001-of-00003"
// ahead of the ending, any part opens all of them.
std::unique_ptr<Checkpoint> open_gguf(const std::string& path);

}  // namespace inferd
