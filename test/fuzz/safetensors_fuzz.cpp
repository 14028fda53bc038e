// The safetensors reader: every byte of every tensor that it hands out can be read, and the tensors
// are exactly the data of the file.
//
// An input with an odd first byte is a header, for which the length and as many bytes of data as
// the second byte says are added; else it is the whole file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "core/checkpoint/safetensors.h"
#include "target.h"

namespace inferd {
namespace {

std::string file_of(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data + 2), size - 2);
  if ((data[0] & 1) == 0) return text;
  const uint64_t length = text.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + text + std::string(data[1], 'x');
}

void check(const SafetensorsFile& opened, size_t file_bytes, size_t header_bytes) {
  int64_t total = 0;
  uint64_t sum = 0;
  for (const auto& [name, t] : opened.tensors()) {
    promise(!name.empty() && name.size() <= 512, "names have a length");
    int64_t count = 1;
    for (const int64_t d : t.shape) count *= d;
    promise(t.bytes >= 0 && (count == 0) == (t.bytes == 0), "shape and bytes agree");
    promise(count == 0 || t.bytes % count == 0, "elements have whole bytes");
    for (int64_t i = 0; i < t.bytes; ++i) sum += std::to_integer<uint64_t>(t.data[i]);
    total += t.bytes;
    (void)shape_text(t.shape);
  }
  promise(static_cast<size_t>(total) == file_bytes - header_bytes, "tensors are all of the data");
  volatile uint64_t keep = sum;  // so that the reads happen
  (void)keep;
}

}  // namespace
}  // namespace inferd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd;
  if (size < 2) return 0;
  const std::string file = file_of(data, size);
  static const int fd = ::memfd_create("safetensors", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  promise(::ftruncate(fd, 0) == 0, "the file can be emptied");
  promise(::pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()),
          "the file can be written");
  accepted(ErrorCode::kBadModel, [&] {
    const SafetensorsFile opened(path);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    check(opened, file.size(), 8 + length);
  });
  return 0;
}
