// See cuda_library.h. Any thread.
#include "engine/cuda_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "core/checkpoint/mapped_file.h"
#include "core/error.h"
#include "cuda_interface.h"

namespace inferd {
namespace {

struct Library {
  std::string problem;  // empty: the functions are there
  decltype(&inferd_cuda_probe) probe = nullptr;
  decltype(&inferd_cuda_nccl) nccl = nullptr;
  decltype(&inferd_cuda_make_backend) make = nullptr;
};

// The folder of the library that holds this code.
std::string own_folder() {
  static const int here = 0;
  Dl_info info{};
  if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

Library open_library() {
  const std::string path = own_folder() + "/inferd_cuda.so";
  if (!file_exists(path)) {
    return {.problem = "This build has no CUDA backend (" + path +
                       " is missing); install the CUDA toolkit and run \"npm run build\", or use "
                       "the device \"cpu\"."};
  }
  void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr)
    return {.problem = std::string("The CUDA backend could not be loaded: ") + dlerror() + "."};
  Library library;
  const auto interface =
      reinterpret_cast<decltype(&inferd_cuda_interface)>(dlsym(handle, "inferd_cuda_interface"));
  library.probe = reinterpret_cast<decltype(library.probe)>(dlsym(handle, "inferd_cuda_probe"));
  library.nccl = reinterpret_cast<decltype(library.nccl)>(dlsym(handle, "inferd_cuda_nccl"));
  library.make =
      reinterpret_cast<decltype(library.make)>(dlsym(handle, "inferd_cuda_make_backend"));
  if (interface == nullptr || library.probe == nullptr || library.nccl == nullptr ||
      library.make == nullptr || std::strcmp(interface(), kCudaInterface) != 0) {
    library.problem = "The CUDA backend " + path +
                      " was built from other sources than the engine; run \"npm run build\", which "
                      "builds both.";
  }
  return library;
}

const Library& library() {
  static const Library loaded = open_library();
  return loaded;
}

// What a function of the library says, or why there is none.
template <typename Answer>
Answer ask(void (*Library::*function)(Answer*)) {
  Answer out{};
  if (library().problem.empty()) {
    (library().*function)(&out);
  } else {
    const size_t length = std::min(library().problem.size(), sizeof out.problem - 1);
    std::memcpy(out.problem, library().problem.data(), length);
  }
  return out;
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  if (!library().problem.empty()) throw Error(ErrorCode::kUnsupported, library().problem);
  return std::unique_ptr<Backend>(library().make(&options));
}

const CudaProbe& probe_cuda() {
  static const CudaProbe found = ask(&Library::probe);
  return found;
}

CudaNccl find_nccl() { return ask(&Library::nccl); }

}  // namespace inferd
