// What benchmarks ask of the CUDA backend: reading alone, and the choice of a product that an
// engine makes at start.
#include "cuda/cuda_backend.h"
#include "cuda/limits.h"

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

void CudaBackend::tune_linear(Tensor out, const Tensor& x, const PackedWeight& weight) {
  const GemmArgs args{.type = half_,
                      .out = out.dtype == DType::kF32 ? GemmOut::kF32 : GemmOut::kHalf,
                      .x = x.data,
                      .x_stride = x.stride[0],
                      .w = weight.plain,
                      .y = out.data,
                      .y_stride = out.stride[0],
                      .bias = nullptr,
                      .add_to_y = false,
                      .m = static_cast<int32_t>(x.rows()),
                      .n = static_cast<int32_t>(weight.rows),
                      .k = static_cast<int32_t>(weight.cols)};
  const void* weights[] = {weight.plain};
  gemm_->tune(args, weights, kCandidates, kBudgetUs, launch());
}

}  // namespace inferd::cuda
