// The wire layout as this library was compiled: word offsets under the names of
// actors/messages/step.ts, so that a test can compare.
#pragma once
#include <napi.h>

namespace inferd {

Napi::Value layout(const Napi::CallbackInfo& info);

}  // namespace inferd
