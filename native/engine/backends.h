// Backend name -> factory; the only place of the engine that knows which backends exist.
#pragma once
#include <memory>

#include "core/backend.h"
#include "engine/options.h"

namespace inferd {

// Throws Error(kUnsupported) for a backend that this build does not hold.
std::unique_ptr<Backend> make_backend(const EngineOptions& options);

}  // namespace inferd
