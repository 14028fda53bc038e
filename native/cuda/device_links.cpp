// See device_links.h. Of NVML (nvml.h, "Device Queries", nvmlDeviceGetP2PStatus) four functions are
// called, found by name: the toolkit need not be installed.
#include "cuda/device_links.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

namespace inferd::cuda {
namespace {

class Nvml {
 public:
  using Device = void*;

  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    if (library_ == nullptr) return;
    const bool all = find(init_, "nvmlInit_v2") && find(shutdown_, "nvmlShutdown") &&
                     find(by_bus_, "nvmlDeviceGetHandleByPciBusId_v2") &&
                     find(p2p_, "nvmlDeviceGetP2PStatus");
    ready_ = all && init_() == 0;
  }
  ~Nvml() {
    if (ready_) shutdown_();
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool over_nvlink(int32_t from, int32_t to) const {
    constexpr int kNvlink = 2, kOk = 0;  // NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK
    Device a = nullptr, b = nullptr;
    int status = -1;
    return ready_ && device(from, a) && device(to, b) && p2p_(a, b, kNvlink, &status) == 0 &&
           status == kOk;
  }

 private:
  template <typename Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }
  // NVML counts all GPUs, CUDA those that the environment lets it see.
  bool device(int32_t index, Device& out) const {
    char bus[32];
    return cudaDeviceGetPCIBusId(bus, sizeof bus, index) == cudaSuccess && by_bus_(bus, &out) == 0;
  }

  void* library_;
  bool ready_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*by_bus_)(const char*, Device*) = nullptr;
  int (*p2p_)(Device, Device, int, int*) = nullptr;
};

}  // namespace

void find_links(int32_t devices,
                CudaLink (&links)[CudaProbe::kMaxDevices][CudaProbe::kMaxDevices]) {
  if (devices < 2) return;  // NVML takes a moment to start
  const Nvml nvml;
  for (int32_t from = 0; from < devices; ++from) {
    for (int32_t to = 0; to < devices; ++to) {
      int can = 0;
      if (from == to || cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess || can == 0)
        continue;
      links[from][to] = nvml.over_nvlink(from, to) ? CudaLink::kNvlink : CudaLink::kPeer;
    }
  }
}

}  // namespace inferd::cuda
