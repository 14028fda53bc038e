// The limits of a GPU, measured beside the bench: GB/s of a kernel that only reads, and TFLOP/s of
// cuBLASLt on 8192 x 8192 x 8192 bf16 noise. Prints two lines, "read_gbs N" and "gemm_tflops N".
#include "gemm_lt.h"
#include "gpu_test.cuh"

using namespace gpu_test;
using namespace inferd::cuda;

int main() {
  constexpr size_t kBytes = size_t{4} << 30, kWorkspace = 64 << 20;
  constexpr int kSize = 8192, kCalls = 10;
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  {
    Device<char> memory(kBytes);
    std::printf("read_gbs %.0f\n", read_ceiling(memory.get(), kBytes, stream));
  }
  Device<char> workspace(kWorkspace);
  workspace.fill(0);
  Device<__nv_bfloat16> x(size_t{kSize} * kSize), w(x.size()), y(x.size());
  fill_noise<<<1024, 256, 0, stream>>>(x.get(), static_cast<int64_t>(x.size()), 1.f, 1);
  fill_noise<<<1024, 256, 0, stream>>>(w.get(), static_cast<int64_t>(w.size()), 1.f, 2);
  std::unique_ptr<GemmLt> lt;
  const char* problem = GemmLt::create(workspace.get(), kWorkspace, lt);
  const GemmArgs args{.type = Half::kBF16,
                      .out = GemmOut::kHalf,
                      .x = x.get(),
                      .x_stride = kSize,
                      .w = w.get(),
                      .y = y.get(),
                      .y_stride = kSize,
                      .bias = nullptr,
                      .add_to_y = false,
                      .m = kSize,
                      .n = kSize,
                      .k = kSize};
  const void* weight = w.get();
  if (problem == nullptr) problem = lt->tune(args, {&weight, 1}, 8, 60'000, stream);
  if (problem != nullptr) {
    std::printf("%s\n", problem);
    return 1;
  }
  const double us = time_in_graph(stream, kCalls, 3, [&](int) { lt->run(args, stream); });
  std::printf("gemm_tflops %.0f\n", 2.0 * kSize * kSize * kSize / us / 1e6);
}
