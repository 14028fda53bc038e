// A read-only memory map of a regular file; unmapped by the destructor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace inferd {

class MappedFile {
 public:
  // Throws Error(kIo) with the file and the system's reason. Refuses what is not a regular file, so
  // that a FIFO cannot block.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)};
  }
  // Gives back the memory of what has been read; it is read again from the file if need be.
  void drop_pages() const;

 private:
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

bool file_exists(const std::string& path);

}  // namespace inferd
