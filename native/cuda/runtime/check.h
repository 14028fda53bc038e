// CUDA status codes as Errors. Host code of the backend; kernel files return their status instead.
#pragma once
#include <cuda_runtime.h>

namespace inferd::cuda {

// Throws Error when `status` is a failure: kOutOfMemory, or kDevice, which is fatal when the
// context is lost. `what` names the call or op.
void check(cudaError_t status, const char* what);

}  // namespace inferd::cuda
