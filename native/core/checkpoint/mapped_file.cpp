// See mapped_file.h. A file that is cut short while it is mapped raises SIGBUS; nothing guards
// against that.
#include "core/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace inferd {

MappedFile::MappedFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    throw Error(ErrorCode::kIo, format("Cannot open %s: %s.", path.c_str(), std::strerror(errno)));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    throw Error(ErrorCode::kIo, format("%s is not a regular file.", path.c_str()));
  }
  size_ = info.st_size;
  if (size_ > 0) {
    void* p = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, fd, 0);
    const int reason = errno;
    ::close(fd);
    if (p == MAP_FAILED)
      throw Error(ErrorCode::kIo,
                  format("Cannot map %s: %s.", path.c_str(), std::strerror(reason)));
    data_ = static_cast<const std::byte*>(p);
    // Weights are read once, front to back: the system may read far ahead. A refusal costs nothing.
    ::madvise(p, static_cast<size_t>(size_), MADV_SEQUENTIAL);
  } else {
    ::close(fd);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

// Pages of a mapping that nobody writes to are those of the file.
void MappedFile::drop_pages() const {
  if (data_ != nullptr)
    ::madvise(const_cast<std::byte*>(data_), static_cast<size_t>(size_), MADV_DONTNEED);
}

bool file_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

}  // namespace inferd
