// See nccl_library.h.
#include "cuda/ranks/nccl/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "core/error.h"

namespace inferd::cuda {
namespace {

constexpr const char* kFile = "libnccl.so.2";
// Of the time of CUDA 12.3: what serves a driver that this build runs on is newer.
constexpr int kOldest = 21900;
constexpr const char* kOldestName = "2.19";

// NCCL reads its settings from the environment, each once. These must hold here whatever the user
// says:
struct Setting {
  const char* name;
  const char* value;
};
constexpr Setting kFixed[] = {
    // No multicast (NVLS): a process that ends amid one can put the GPUs of the host out of
    // service.
    {"NCCL_NVLS_ENABLE", "0"},
    // Ranks connect when they are made, where all are at hand, and not in the first sum of each
    // kind, which one of them may record alone.
    {"NCCL_RUNTIME_CONNECT", "0"},
    // Nor do they exchange the places of what is summed while one of them records.
    {"NCCL_GRAPH_REGISTER", "0"},
    // No launch waits for the launch of another rank.
    {"NCCL_LAUNCH_MODE", "PARALLEL"},
};

// The C library may move the environment when it grows, under another thread that reads it; so it
// is touched for what differs alone, once, and before the library is there.
void set_environment() {
  for (const auto& [name, value] : kFixed) {
    const char* now = std::getenv(name);
    if (now == nullptr || std::strcmp(now, value) != 0) setenv(name, value, 1);
  }
  // The ranks are threads of this process: what they meet over need not be open to other machines.
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

// Null with `why` set.
void* open_library(std::string& why) {
  if (const char* named = std::getenv("INFERD_NCCL"); named != nullptr && *named != '\0') {
    void* handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
      why = format(
          "NCCL could not be loaded from INFERD_NCCL: %s; name the file %s of NCCL %s or "
          "newer.",
          dlerror(), kFile, kOldestName);
    return handle;
  }
#ifdef INFERD_CUBLAS_FOLDER
  const std::string folders[] = {"", INFERD_CUBLAS_FOLDER "/../../nccl/lib/"};
#else
  const std::string folders[] = {""};
#endif
  for (const std::string& folder : folders) {
    if (void* handle = dlopen((folder + kFile).c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  why = format(
      "NCCL was not found (%s); install NCCL %s or newer for the CUDA of the driver, or "
      "put its path in INFERD_NCCL.",
      kFile, kOldestName);
  return nullptr;
}

std::string version_text(int version) {
  return format("%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

NcclLibrary open_nccl() {
  NcclLibrary library;
  set_environment();
  void* handle = open_library(library.problem);
  if (handle == nullptr) return library;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  int (*get_version)(int*) = nullptr;
  find(get_version, "ncclGetVersion");
  find(library.error_text, "ncclGetErrorString");
  find(library.get_id, "ncclGetUniqueId");
  find(library.group_start, "ncclGroupStart");
  find(library.group_end, "ncclGroupEnd");
  find(library.join, "ncclCommInitRank");
  find(library.all_reduce, "ncclAllReduce");
  find(library.all_gather, "ncclAllGather");
  find(library.abort, "ncclCommAbort");
  find(library.async_error, "ncclCommGetAsyncError");
  int version = 0;
  if (!missing.empty()) {
    library.problem = format(
        "The library %s that was found is not NCCL %s or newer, as it lacks "
        "%s; install one that is, or put its path in INFERD_NCCL.",
        kFile, kOldestName, missing.c_str());
  } else if (const int result = get_version(&version); result != 0) {
    library.problem = format("NCCL does not tell its version: %s; install NCCL %s or newer.",
                             library.error_text(result), kOldestName);
  } else if (version < kOldest) {
    // Before 2.9 numbers had one digit less.
    library.problem = format(
        "NCCL %s was found, and %s or newer is needed; install one, or put its "
        "path in INFERD_NCCL.",
        version < 10000 ? "2.8 or older" : version_text(version).c_str(), kOldestName);
  }
  if (!library.problem.empty()) return {.problem = library.problem};
  library.version = version_text(version);
  return library;
}

const NcclLibrary& nccl() {
  // For ever: a thread that ends a group may outlive what a process destroys at its end.
  static const NcclLibrary* const opened = new NcclLibrary(open_nccl());
  return *opened;
}

}  // namespace inferd::cuda
