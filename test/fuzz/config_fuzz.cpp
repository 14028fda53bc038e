// config.json: whatever is accepted has sizes in range, so that nothing computed from them
// overflows, and rope frequencies that are numbers.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <variant>

#include "models/config/rope.h"
#include "models/registry.h"
#include "target.h"

namespace inferd {
namespace {

void promise_cache(int64_t values, const ModelConfig& c) {
  int64_t bytes = 8 * values;
  promise(!__builtin_mul_overflow(bytes, c.max_positions, &bytes) &&
              !__builtin_mul_overflow(bytes, static_cast<int64_t>(c.layers.size()), &bytes),
          "the cache can be counted");
}

void promise_rope(int32_t number, int32_t dims, const ModelConfig& c) {
  promise(number >= 0 && static_cast<size_t>(number) < c.ropes.size(), "ropes exist");
  const RopeConfig& rope = c.ropes[static_cast<size_t>(number)];
  promise(rope.rotary_dim >= 2 && rope.rotary_dim <= dims, "rope fits the heads");
}

void check(const AttentionConfig& a, const ModelConfig& c) {
  promise(a.heads > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0, "heads are groups");
  promise(a.head_dim > 0 && a.head_dim % 2 == 0 && a.head_dim <= 1024, "heads are even");
  promise(a.window >= 0, "windows are not negative");
  promise(std::isfinite(a.scale) && a.softcap >= 0, "scores are scaled by numbers");
  promise_cache(a.qkv_size(), c);
  if (a.rope != kNoRope) promise_rope(a.rope, a.head_dim, c);
}

void check(const LatentAttentionConfig& a, const ModelConfig& c) {
  promise(a.heads > 0 && a.rank > 0 && a.query_rank >= 0, "sizes are positive");
  promise(a.nope_dim > 0 && a.rope_dim > 0 && a.value_dim > 0, "heads have dimensions");
  promise(a.query_dim() > 0 && a.cached_dim() > 0, "dimensions can be added up");
  promise(a.window >= 0, "windows are not negative");
  promise(std::isfinite(a.scale), "scores are scaled by a number");
  promise_cache(int64_t{a.heads} * (a.query_dim() + a.value_dim) + a.cached_dim(), c);
  promise_rope(a.rope, a.rope_dim, c);
}

void check(const MlpConfig& mlp, const ModelConfig&) {
  promise(mlp.intermediate_size > 0 && mlp.intermediate_size <= 1 << 20, "sizes are positive");
}

void check(const ExpertsConfig& e, const ModelConfig& c) {
  promise(e.intermediate_size > 0 && e.intermediate_size <= 1 << 20, "sizes are positive");
  promise(e.shared_size >= 0 && e.shared_size <= int64_t{1} << 32, "shared ones can be counted");
  promise(e.rule.experts > 0 && e.rule.chosen > 0 && e.rule.chosen <= e.rule.experts,
          "a token has experts");
  int64_t bytes = 2 * c.hidden_size;
  promise(!__builtin_mul_overflow(bytes, e.intermediate_size, &bytes) &&
              !__builtin_mul_overflow(bytes, int64_t{e.rule.experts}, &bytes),
          "experts can be counted");
}

void check(ModelConfig& c) {
  promise(c.vocab_size > 0 && c.hidden_size > 0, "sizes are positive");
  promise(c.max_positions > 0 && c.max_positions <= 1 << 24, "positions are bounded");
  int64_t bytes = 8;
  promise(!__builtin_mul_overflow(bytes, c.vocab_size, &bytes) &&
              !__builtin_mul_overflow(bytes, c.hidden_size, &bytes),
          "the embedding can be counted");
  promise(!c.layers.empty(), "there are layers");
  for (const LayerConfig& layer : c.layers) {
    for (const BlockConfig& block : layer)
      std::visit([&](const auto& of) { check(of, c); }, block.block);
  }
  for (const RopeConfig& rope : c.ropes) {
    for (const int64_t max_len : {int64_t{1}, c.max_positions}) {
      const RopeFrequencies f = rope_frequencies(rope, max_len);
      for (const float v : f.inv_freq) promise(std::isfinite(v), "frequencies are finite");
      promise(std::isfinite(f.attention_factor), "the attention factor is finite");
    }
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
