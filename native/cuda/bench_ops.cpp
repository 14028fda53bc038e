// What benchmarks ask of the CUDA backend: reading alone, and the choice of a product that an
// engine makes at start.
#include "cuda/cuda_backend.h"
#include "cuda/rows/read_all.h"

namespace inferd::cuda {
namespace {

// Of the proposals for one product; an engine looks at as many.
constexpr int32_t kCandidates = 10;
constexpr float kBudgetUs = 20'000;

}  // namespace

bool CudaBackend::read_all(const void* p, size_t bytes) {
  auto* out = static_cast<uint32_t*>(read_result_.get(sizeof(uint32_t), stream_.get()));
  check(cuda::read_all(p, bytes, out, stream_.get()), "read_all");
  return true;
}

void CudaBackend::tune_linear(const LinearArgs& args) {
  if (!fused_epilogue(args.epilogue, args.gate)) return;
  const GemmArgs gemm = product(args);
  gemm_->tune(gemm, {&gemm.w, 1}, kCandidates, kBudgetUs, launch());
}

}  // namespace inferd::cuda
