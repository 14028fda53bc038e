// What the engine loads from inferd_cuda.so: four functions, found by name (see
// engine/cuda_library.h). A class with virtual functions and types of the standard library cross
// here, so both sides must be compiled from the same headers, of which this one may include those
// of core/ alone: cuda_interface.cmake hashes these.
#pragma once
#include <cstdint>

#include "core/backend.h"

namespace inferd {

struct CudaOptions {
  int32_t device_id = 0;
  DType activation = DType::kBF16;  // or kF16: the type of activations, weights and KV cache
};

struct CudaDevice {
  char name[256];
  int32_t major, minor;
  int64_t total_bytes;
};

// How one GPU reaches the memory of another one.
enum class CudaLink : uint8_t { kNone, kPeer, kNvlink };

struct CudaProbe {
  static constexpr int32_t kMaxDevices = 16;
  char problem[1024];                       // one sentence when nothing can run, else empty
  int32_t driver_version, runtime_version;  // 13000 = 13.0
  char cublas[64];
  int32_t num_devices;
  CudaDevice devices[kMaxDevices];
  CudaLink links[kMaxDevices][kMaxDevices];  // [from][to]
};

struct CudaNccl {
  char problem[512];  // one sentence when it cannot be used, else empty
  char version[32];
};

extern "C" {
// The hash of the headers that the library was compiled from: kCudaInterface of cuda_interface.h.
const char* inferd_cuda_interface();
// Creates no context and never throws.
void inferd_cuda_probe(CudaProbe* out);
// Opens NCCL, which stays open. Needs no device and never throws.
void inferd_cuda_nccl(CudaNccl* out);
// Throws Error(kUnsupported) with one sentence when driver, GPU or cuBLAS are missing. The caller
// deletes the backend.
Backend* inferd_cuda_make_backend(const CudaOptions* options);
}

}  // namespace inferd
