// What the engine and the tests load from inferd_cuda.so: three functions, found by name (see
// engine/cuda_library.h). Plain C structs, so that both sides may be compiled at different times;
// kCudaAbi changes with them and with core/backend.h.
#pragma once
#include <cstdint>

#include "core/backend.h"

namespace inferd {

constexpr int32_t kCudaAbi = 5;

struct CudaOptions {
  int32_t device_id = 0;
  DType activation = DType::kBF16;  // or kF16: the type of activations, weights and KV cache
};

struct CudaDevice {
  char name[256];
  int32_t major, minor;
  int64_t total_bytes;
};

struct CudaProbe {
  static constexpr int32_t kMaxDevices = 16;
  char problem[256];                        // one sentence when nothing can run, else empty
  int32_t driver_version, runtime_version;  // 13000 = 13.0
  char cublas[64];
  int32_t num_devices;
  CudaDevice devices[kMaxDevices];
};

extern "C" {
int32_t inferd_cuda_abi();
// Creates no context and never throws.
void inferd_cuda_probe(CudaProbe* out);
// Throws Error(kUnsupported) with one sentence when driver, GPU or cuBLAS are missing. The caller
// deletes the backend.
Backend* inferd_cuda_make_backend(const CudaOptions* options);
}

}  // namespace inferd
