// See check.h.
#include "cuda/runtime/check.h"

#include "core/error.h"

namespace inferd::cuda {
namespace {

// What leaves the context usable; everything else sticks to every later call of the process.
bool harmless(cudaError_t status) {
  switch (status) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotSupported:
    case cudaErrorNotPermitted:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
      return true;
    default:
      return false;
  }
}

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // forget it, so that the next launch does not report it again
  if (status == cudaErrorMemoryAllocation)
    throw Error(ErrorCode::kOutOfMemory, format("The GPU is out of memory (%s).", what));
  throw Error(ErrorCode::kDevice,
              format("%s failed on the GPU: %s (%s).", what, cudaGetErrorString(status),
                     cudaGetErrorName(status)),
              !harmless(status));
}

}  // namespace inferd::cuda
