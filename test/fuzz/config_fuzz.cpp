// config.json: whatever is accepted has sizes in range, so that nothing computed from them
// overflows, and rope frequencies that are numbers.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "models/registry.h"
#include "models/rope.h"
#include "target.h"

namespace inferd {
namespace {

void check(const ModelConfig& c) {
  promise(c.vocab_size > 0 && c.hidden_size > 0 && c.intermediate_size > 0, "sizes are positive");
  promise(c.num_heads > 0 && c.num_kv_heads > 0 && c.num_heads % c.num_kv_heads == 0,
          "heads are groups");
  promise(c.head_dim > 0 && c.head_dim % 2 == 0 && c.head_dim <= 1024, "heads are even");
  promise(c.max_positions > 0 && c.max_positions <= 1 << 24, "positions are bounded");
  promise(c.windows.size() == static_cast<size_t>(c.num_layers), "every layer has a window");
  for (const int32_t window : c.windows) promise(window >= 0, "windows are not negative");
  int64_t bytes = 8;
  promise(!__builtin_mul_overflow(bytes, c.vocab_size, &bytes) &&
              !__builtin_mul_overflow(bytes, c.hidden_size, &bytes),
          "the embedding can be counted");
  bytes = 8 * c.qkv_size();
  promise(!__builtin_mul_overflow(bytes, c.max_positions, &bytes) &&
              !__builtin_mul_overflow(bytes, int64_t{c.num_layers}, &bytes),
          "the cache can be counted");
  promise(c.rope.rotary_dim >= 2 && c.rope.rotary_dim <= c.head_dim, "rope fits the heads");
  for (const int64_t max_len : {int64_t{1}, c.max_positions}) {
    const RopeFrequencies f = rope_frequencies(c.rope, c, max_len);
    for (const float v : f.inv_freq) promise(std::isfinite(v), "frequencies are finite");
    promise(std::isfinite(f.attention_factor), "the attention factor is finite");
  }
}

// A folder of this process that holds config.json as a link to a file in memory.
std::string make_folder(int fd) {
  char name[] = "/tmp/inferd-fuzz-XXXXXX";
  promise(::mkdtemp(name) != nullptr, "a folder can be made");
  const std::string folder = name;
  promise(::symlink(("/proc/self/fd/" + std::to_string(fd)).c_str(),
                    (folder + "/config.json").c_str()) == 0,
          "a link can be made");
  return folder;
}

struct Folder {
  const int fd = ::memfd_create("config", 0);
  const std::string path = make_folder(fd);
  ~Folder() {
    ::unlink((path + "/config.json").c_str());
    ::rmdir(path.c_str());
  }
};

}  // namespace
}  // namespace inferd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd;
  static const Folder folder;
  promise(::ftruncate(folder.fd, 0) == 0, "the file can be emptied");
  promise(::pwrite(folder.fd, data, size, 0) == static_cast<ssize_t>(size),
          "the file can be written");
  ModelConfig config;
  if (accepted(ErrorCode::kBadModel, [&] { config = read_model_config(folder.path); }))
    check(config);
  return 0;
}
