// See backends.h.
#include "engine/backends.h"

#include "core/checkpoint/json.h"
#include "core/error.h"
#include "core/formats/stored_formats.h"
#include "cpu/make_backend.h"
#include "engine/cuda_library.h"

namespace inferd {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Backend> (*make)(const EngineOptions&, DType weights);
};
constexpr Entry kBackends[] = {
    {"cpu",
     [](const EngineOptions& o, DType) {
       return make_cpu_backend({.threads = o.threads, .ranks = o.world_size, .isa = o.isa});
     }},
    {"cuda",
     [](const EngineOptions& o, DType weights) {
       return make_cuda_backend(
           {.device_id = o.device_id,
            .activation = weights == DType::kF16 ? DType::kF16 : DType::kBF16});
     }},
};

}  // namespace

std::unique_ptr<Backend> make_backend(const EngineOptions& options, DType weights) {
  for (const Entry& e : kBackends) {
    if (options.backend == e.name) return e.make(options, weights);
  }
  throw Error(ErrorCode::kUnsupported, "There is no backend " + in_quotes(options.backend) + ".");
}

std::vector<CpuFormat> cpu_formats() {
  std::vector<CpuFormat> all;
  for (const StoredFormat& stored : stored_formats()) {
    const bool known = refusal_of(stored.kept, cpu_weight_formats()).empty();
    all.push_back({stored.name, stored.kept.scaled && known});
  }
  return all;
}

std::unique_ptr<Comm> join_on_host(const RankGroup& group) { return join_host_group(group); }

}  // namespace inferd
