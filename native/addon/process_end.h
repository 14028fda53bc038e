// The end of a process that cannot wait for its threads.
#pragma once
#include <napi.h>

namespace inferd {

// exitWithin(code, ms) of native/index.ts.
Napi::Value exit_within(const Napi::CallbackInfo& info);

}  // namespace inferd
