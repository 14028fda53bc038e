// The op table: runs single ops of any backend on given inputs, for conformance tests and for
// timing. Exported as opNames and runOp of native/index.ts.
//
// It ships in the addon that users have, because `inferd bench ops` times ops and limits of their
// machine through it, and so that tests check the very library that serves. A daemon never calls
// it.
#pragma once
#include <napi.h>

namespace inferd {

// () -> string[]
Napi::Value op_names(const Napi::CallbackInfo& info);

// (OpCall) -> { name: Float32Array | Int32Array }. Blocks until the op is done. @throws Error,
// which the caller turns into a JavaScript one.
Napi::Value run_op(const Napi::CallbackInfo& info);

}  // namespace inferd
