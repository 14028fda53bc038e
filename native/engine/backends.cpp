// See backends.h.
#include "engine/backends.h"

#include "core/error.h"
#include "core/json.h"
#include "cpu/backend.h"

namespace inferd {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Backend> (*make)(const EngineOptions&);
};
constexpr Entry kBackends[] = {
    {"cpu",
     [](const EngineOptions& o) { return make_cpu_backend({.threads = o.threads, .isa = o.isa}); }},
};

}  // namespace

std::unique_ptr<Backend> make_backend(const EngineOptions& options) {
  for (const Entry& e : kBackends) {
    if (options.backend == e.name) return e.make(options);
  }
  if (options.backend == "cuda")
    throw Error(ErrorCode::kUnsupported, "This build has no CUDA backend; use the device \"cpu\".");
  throw Error(ErrorCode::kUnsupported, "There is no backend " + quoted(options.backend) + ".");
}

}  // namespace inferd
