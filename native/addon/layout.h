// The wire layout as this library was compiled: word offsets under the names of
// actors/messages/step.ts, and ranges of sampling parameters under those of sampling.ts, so that
// tests can compare.
#pragma once
#include <napi.h>

namespace inferd {

Napi::Value layout(const Napi::CallbackInfo& info);

}  // namespace inferd
