// The GGUF reader: every byte of every tensor that it hands out can be read, in the file and as
// weights, and no two share one.
//
// An input with an odd first byte lacks the first word and the version, which are added, and gets
// as many bytes of data as its second byte says times 64; else it is the whole file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "core/checkpoint/block_types.h"
#include "core/checkpoint/gguf.h"
#include "target.h"

namespace inferd {
namespace {

std::string file_of(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data + 2), size - 2);
  if ((data[0] & 1) == 0) return text;
  return std::string("GGUF\3\0\0\0", 8) + text + std::string(size_t{64} * data[1], 'x');
}

void check(const GgufFile& opened, size_t file_bytes) {
  int64_t total = 0;
  double sum = 0;
  for (const auto& [name, t] : opened.tensors()) {
    int64_t count = 1;
    for (const int64_t d : t.shape) count *= d;
    promise(count > 0 && t.bytes > 0, "tensors have elements");
    total += t.bytes;
    for (int64_t i = 0; i < t.bytes; ++i) sum += std::to_integer<int>(t.data[i]);
    if (t.blocks == nullptr) continue;
    CodedBlock out[8];
    for (int64_t at = 0; at < t.bytes; at += t.blocks->bytes) {
      t.blocks->decode(t.data + at, out);
      sum += out[0].codes[0];
    }
  }
  promise(static_cast<size_t>(total) <= file_bytes, "tensors lie in the file");
  volatile double keep = sum;  // so that the reads happen
  (void)keep;
}

}  // namespace
}  // namespace inferd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd;
  if (size < 2) return 0;
  const std::string file = file_of(data, size);
  static const int fd = ::memfd_create("gguf", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  promise(::ftruncate(fd, 0) == 0, "the file can be emptied");
  promise(::pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()),
          "the file can be written");
  accepted(ErrorCode::kBadModel, [&] { check(GgufFile(path), file.size()); });
  return 0;
}
