// See library.h.
#include "cuda/library.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/error.h"
#include "cuda/cuda_backend.h"
#include "cuda/device_links.h"
#include "cuda/gemm/gemm.h"
#include "cuda/ranks/nccl/nccl_library.h"
#include "cuda_interface.h"

namespace inferd {
namespace {

// Why no device can be used, or "".
std::string missing_driver() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return "No NVIDIA driver was found (libcuda.so.1); install it to use a GPU.";
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    return format(
        "The NVIDIA driver is too old: it serves CUDA %d.%d and this build needs %d.%d; update the "
        "driver.",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    return "The NVIDIA driver sees no GPU.";
  if (status != cudaSuccess)
    return format("The GPU cannot be used: %s.", cudaGetErrorString(status));
  return "";
}

// Why none of the GPUs can be used for its age, or "".
std::string too_old(const CudaProbe& probe) {
  for (int32_t i = 0; i < probe.num_devices; ++i) {
    if (probe.devices[i].major >= cuda::kOldestMajor) return "";
  }
  if (probe.num_devices == 0) return "The NVIDIA driver sees no GPU any more.";
  const CudaDevice& first = probe.devices[0];
  return format("The GPU %s has compute capability %d.%d and the kernels need %d.0 or newer.",
                first.name, first.major, first.minor, cuda::kOldestMajor);
}

void copy_text(char* to, size_t size, const std::string& text) {
  std::snprintf(to, size, "%s", text.c_str());
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] const char* inferd_cuda_interface() { return kCudaInterface; }

[[gnu::visibility("default")]] void inferd_cuda_probe(CudaProbe* out) {
  *out = CudaProbe{};
  cudaDriverGetVersion(&out->driver_version);
  cudaRuntimeGetVersion(&out->runtime_version);
  copy_text(out->cublas, sizeof out->cublas, cuda::cublas_version());
  std::string problem = missing_driver();
  int count = 0;
  if (problem.empty() && cudaGetDeviceCount(&count) == cudaSuccess) {
    out->num_devices = std::min(count, CudaProbe::kMaxDevices);
    for (int32_t i = 0; i < out->num_devices; ++i) {
      cudaDeviceProp properties{};
      if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
      CudaDevice& d = out->devices[i];
      copy_text(d.name, sizeof d.name, properties.name);
      d.major = properties.major;
      d.minor = properties.minor;
      d.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    }
    cuda::find_links(out->num_devices, out->links);
  }
  cudaGetLastError();
  if (problem.empty()) problem = too_old(*out);
  if (problem.empty()) problem = cuda::missing_cublas();
  copy_text(out->problem, sizeof out->problem, problem);
}

[[gnu::visibility("default")]] void inferd_cuda_nccl(CudaNccl* out) {
  *out = CudaNccl{};
  copy_text(out->problem, sizeof out->problem, cuda::nccl().problem);
  copy_text(out->version, sizeof out->version, cuda::nccl().version);
}

[[gnu::visibility("default")]] Backend* inferd_cuda_make_backend(const CudaOptions* options) {
  std::string problem = missing_driver();
  if (problem.empty()) problem = cuda::missing_cublas();
  if (!problem.empty()) throw Error(ErrorCode::kUnsupported, problem);
  return new cuda::CudaBackend(*options);
}

}  // extern "C"

}  // namespace inferd
