// Backend name -> factory; the only place of the engine that knows which backends exist.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"
#include "engine/options.h"

namespace inferd {

// `weights` is the type the weights will have; a GPU computes in it where it is a 16-bit type, else
// in bf16. Throws Error(kUnsupported) for a backend that this build or machine does not have.
std::unique_ptr<Backend> make_backend(const EngineOptions& options, DType weights);

// A quantized format of checkpoints, and whether the CPU multiplies it in its own codes.
struct CpuFormat {
  std::string name;
  bool native;
};
std::vector<CpuFormat> cpu_formats();

// What a rank of whatever backend does with the others in host memory. Throws when the group has
// ended.
std::unique_ptr<Comm> join_on_host(const RankGroup& group);

}  // namespace inferd
