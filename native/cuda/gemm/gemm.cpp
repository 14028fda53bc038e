// See gemm.h. This library refers to cuBLASLt by name only: load_cublas() brings it into the
// process before the first of those names is called.
#include "cuda/gemm/gemm.h"

#include <dlfcn.h>

#include <cstdlib>

#include "core/error.h"
#include "cuda/runtime/memory.h"
#if INFERD_CUBLAS
#include "cuda/gemm/gemm_lt.h"
#endif

namespace inferd::cuda {

#if INFERD_CUBLAS
namespace {

constexpr const char* kLibrary = "libcublasLt.so." INFERD_CUBLAS_SONAME;
constexpr size_t kWorkspaceBytes = 64 << 20;

// Where the system finds libraries, where the build found the headers, where toolkits install.
void* load_cublas() {
  const std::string folders[] = {"", INFERD_CUBLAS_FOLDER "/", "/usr/local/cuda/lib64/"};
  for (const std::string& folder : folders) {
    if (void* handle = dlopen((folder + kLibrary).c_str(), RTLD_LAZY | RTLD_GLOBAL)) return handle;
  }
  return nullptr;
}

void* cublas() {
  static void* const handle = load_cublas();
  return handle;
}

void check_text(const char* problem, const char* what) {
  if (problem != nullptr)
    throw Error(ErrorCode::kDevice, format("%s failed on the GPU: %s.", what, problem));
}

class LtGemm final : public Gemm {
 public:
  LtGemm() : workspace_(allocate_device(kWorkspaceBytes)) {
    check_text(GemmLt::create(workspace_.get(), kWorkspaceBytes, lt_), "starting cuBLASLt");
  }
  void run(const GemmArgs& args, const Launch& launch) override {
    check_text(lt_->run(args, launch), "linear");
  }
  void tune(const GemmArgs& args, std::span<const WeightView> weights, int32_t most,
            float budget_us, const Launch& launch) override {
    check_text(lt_->tune(args, weights, most, budget_us, launch), "tuning linear");
  }

 private:
  DeviceMemory workspace_;
  std::unique_ptr<GemmLt> lt_;
};

}  // namespace

std::string missing_cublas() {
  if (cublas() != nullptr) return "";
  return format(
      "cuBLAS was not found (%s); install it with the CUDA toolkit, or put its folder in "
      "LD_LIBRARY_PATH.",
      kLibrary);
}

std::string cublas_version() {
  if (cublas() == nullptr) return "";
  const auto version = reinterpret_cast<size_t (*)()>(dlsym(cublas(), "cublasLtGetVersion"));
  if (version == nullptr) return "";
  const size_t v = version();
  return format("%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

std::unique_ptr<Gemm> make_gemm() { return std::make_unique<LtGemm>(); }

#else

std::string missing_cublas() {
  return "This build has no cuBLAS, whose headers were missing; install it and run \"npm run "
         "build\".";
}
std::string cublas_version() { return ""; }
std::unique_ptr<Gemm> make_gemm() { throw Error(ErrorCode::kUnsupported, missing_cublas()); }

#endif

}  // namespace inferd::cuda
