// The large GEMM of Hopper: correctness against float64, then times in turn with cuBLASLt's tuned
// best (and gated_mul, for the gated form) in the same run.
//   ./large_gemm_test [check | quick | bench [m] | once [m]]     sources: programs.mjs; quick: few
//   rows, for compute-sanitizer
#include <cstring>

#include "cuda/device/launch.cuh"
#include "cuda/gemm/gemm_kernels.h"
#include "cuda/gemm/gemm_lt.h"
#include "cuda/gemm/large_gemm.h"
#include "cuda/rows/activation.h"
#include "gemm_reference.cuh"
#include "gpu_test.cuh"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

// In place of gemm_kernels.cpp: the tuner has cuBLASLt alone to choose from, which is what is
// measured against.
std::span<const GemmKernel> inferd::cuda::gemm_kernels() { return {}; }

namespace {

constexpr size_t kWorkspace = 64 << 20;

struct Case {
  int m, n, k;
  bool bias, add, gated;
  int sample = 0;  // rows compared, at random; 0: all
};

// totals: [0] sum of squared differences, [1] of squared wanted values, [2] values outside of the
// result that changed.
template <typename T>
__global__ void compare(double* totals, GemmArgs p, const T* before, int sample) {
  const int column = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (column >= p.n) return;
  const int64_t row =
      sample == 0 ? blockIdx.y : static_cast<int64_t>((noise(blockIdx.y, 77) + 1.f) / 2 * p.m);
  const double want = wanted<T, T, T>(p, row, column, before, nullptr);
  const double got =
      static_cast<double>(static_cast<float>(static_cast<T*>(p.y)[row * p.y_stride + column]));
  if (lane != 0) return;
  atomicAdd(&totals[0], (got - want) * (got - want));
  atomicAdd(&totals[1], want * want);
}

template <typename T>
__global__ void count_changes(double* total, const T* now, const T* before, int64_t rows,
                              int64_t stride, int m, int n) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < rows * stride;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const bool inside = i / stride < m && i % stride < n;
    const bool same =
        reinterpret_cast<const uint16_t*>(now)[i] == reinterpret_cast<const uint16_t*>(before)[i];
    if (!inside && !same) atomicAdd(total, 1.0);
  }
}

// Noise in a [rows, width] part of a wider array of NaN.
template <typename T>
__global__ void fill_rows(T* p, int64_t rows, int64_t width, int64_t stride, float scale,
                          uint32_t seed) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < rows * width;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    p[i / width * stride + i % width] =
        static_cast<T>(noise(static_cast<uint64_t>(i), seed) * scale);
  }
}

// A kernel ahead that lets the next one start and writes its x late.
template <typename T>
__global__ void late_copy(T* to, const T* from, int64_t count) {
  let_next_start();
  wait_for_previous();
  for (int i = 0; i < 20; ++i) __nanosleep(1000);
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    to[i] = from[i];
  }
}

template <typename T>
void check_case(const Case& c, cudaStream_t stream) {
  const int64_t x_stride = c.k + 8, y_stride = c.n + 8, guard = 3;
  const int64_t w_rows = static_cast<int64_t>(c.n) * (c.gated ? 2 : 1);
  const float scale = c.gated ? 2.f / std::sqrt(static_cast<float>(c.k)) : 1.f;
  Device<T> x(static_cast<size_t>((c.m + guard) * x_stride)), late(x.size());
  Device<T> w(static_cast<size_t>((w_rows + guard) * c.k));
  Device<T> bias(noisy<T>(static_cast<size_t>(w_rows), 3.f, 3));
  Device<T> before(static_cast<size_t>((c.m + guard) * y_stride)), y(before.size()),
      again(before.size());
  Device<double> totals(3);
  fill_rows<<<1024, 256, 0, stream>>>(x.get(), c.m, c.k, x_stride, scale, 1);
  fill_rows<<<1024, 256, 0, stream>>>(w.get(), w_rows, c.k, c.k, 1.f, 2);
  fill_noise<<<1024, 256, 0, stream>>>(before.get(), static_cast<int64_t>(before.size()), 3.f, 4);
  GemmArgs args = {.type = half_of<T>,
                   .out = GemmOut::kHalf,
                   .x = x.get(),
                   .x_stride = x_stride,
                   .w = plain_weight(half_of<T>, w.get()),
                   .y = y.get(),
                   .y_stride = y_stride,
                   .bias = c.bias ? bias.get() : nullptr,
                   .add_to_y = c.add,
                   .m = c.m,
                   .n = c.n,
                   .k = c.k,
                   .gated = c.gated};
  expect(large_gemm_takes(args), "a case is not taken");
  const size_t bytes = before.size() * sizeof(T);
  char name[160];
  std::snprintf(name, sizeof name, "%s m %d n %d k %d%s%s%s",
                half_of<T> == Half::kF16 ? "f16" : "bf16", c.m, c.n, c.k, c.bias ? " bias" : "",
                c.add ? " add" : "", c.gated ? " gated" : "");
  CHECK_CUDA(cudaMemcpyAsync(y.get(), before.get(), bytes, cudaMemcpyDefault, stream));
  CHECK_CUDA(cudaMemsetAsync(totals.get(), 0, 3 * sizeof(double), stream));
  CHECK_CUDA(large_gemm(args, stream));
  compare<T><<<dim3((c.n + 7) / 8, c.sample == 0 ? c.m : c.sample), 256, 0, stream>>>(
      totals.get(), args, before.get(), c.sample);
  count_changes<<<1024, 256, 0, stream>>>(totals.get() + 2, y.get(), before.get(), c.m + guard,
                                          y_stride, c.m, c.n);
  // Once more with an early start behind a kernel that writes x late.
  CHECK_CUDA(cudaMemcpyAsync(again.get(), before.get(), bytes, cudaMemcpyDefault, stream));
  CHECK_CUDA(cudaMemsetAsync(late.get(), 0xff, late.size() * sizeof(T), stream));
  GemmArgs behind = args;
  behind.x = late.get();
  behind.y = again.get();
  CHECK_CUDA(launch_kernel(late_copy<T>, {.grid = dim3(64), .threads = 256}, Launch(stream, true),
                           late.get(), static_cast<const T*>(x.get()),
                           static_cast<int64_t>(x.size())));
  CHECK_CUDA(large_gemm(behind, Launch(stream, true)));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const std::vector<double> sums = totals.download();
  const double error = std::sqrt(sums[0] / std::max(sums[1], 1e-300));
  expect(error < rounding<T>, std::string(name) + " error " + std::to_string(error));
  expect(sums[2] == 0, std::string(name) + " wrote outside of its result");
  const std::vector<T> got = y.download(), repeated = again.download();
  expect(std::memcmp(got.data(), repeated.data(), bytes) == 0,
         std::string(name) + " differs on repeat");
}

template <typename T>
void check_type(bool quick, cudaStream_t stream) {
  int turn = 0;
  for (int m : {1, 63, 127, 128, 129, 500, 1000, 2049}) {
    if (quick && m > 129) continue;
    for (const auto& [n, k] : {std::pair{8, 8}, {264, 72}, {1096, 520}, {320, 4104}}) {
      const int form = turn++ % 5;
      check_case<T>({m, n, k, form == 1 || form == 4, form == 2, form >= 3}, stream);
      check_case<T>({m, n, k, form == 2, form == 1 || form == 3, form == 0}, stream);
    }
  }
  if (quick) return;
  check_case<T>({4096, 4096, 1024, false, true, false, 128}, stream);
  check_case<T>({4096, 14336, 512, false, false, true, 128}, stream);
  check_case<T>({8200, 6144, 256, true, false, false, 128}, stream);
}

struct Weight {
  int n, k;
  bool gated, add;
  const char* name;
};
constexpr Weight kShapes[] = {{6144, 4096, false, false, "qkv"},
                              {4096, 4096, false, true, "o"},
                              {14336, 4096, true, false, "gate_up"},
                              {4096, 14336, false, true, "down"}};
using Bf16 = __nv_bfloat16;

struct Contender {
  std::string name;
  std::function<void(int)> run;
  std::vector<double> us;
};

// Times all contenders in turn, forth and back, each for `block_ms` after as much again unmeasured:
// the card runs at its power limit, and what ran before is felt for a tenth of a second.
void compete(std::vector<Contender>& all, cudaStream_t stream, double block_ms) {
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  const auto time = [&](Contender& c, int repeat) {
    CHECK_CUDA(cudaEventRecord(begin, stream));
    for (int i = 0; i < repeat; ++i) c.run(i);
    CHECK_CUDA(cudaEventRecord(end, stream));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    return static_cast<double>(ms) * 1000 / repeat;
  };
  for (Contender& c : all) time(c, 1);
  for (size_t turn = 0; turn < all.size() * 2; ++turn) {
    Contender& c = all[turn < all.size() ? turn : all.size() * 2 - 1 - turn];
    const int repeat = std::max(1, static_cast<int>(block_ms * 1000 / time(c, 2)));
    time(c, repeat);
    c.us.push_back(time(c, repeat));
  }
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
}

void bench_shape(const Weight& s, int m, GemmLt& lt, Device<Bf16>& w, Device<Bf16>& x,
                 Device<Bf16>& y, Device<Bf16>& wide, bool once, cudaStream_t stream) {
  const int w_rows = s.gated ? 2 * s.n : s.n;
  const int64_t size = static_cast<int64_t>(w_rows) * s.k;
  const int copies =
      static_cast<int>(std::clamp<int64_t>(static_cast<int64_t>(w.size()) / size, 1, 8));
  const auto args = [&](int i) {
    return GemmArgs{.type = Half::kBF16,
                    .out = GemmOut::kHalf,
                    .x = x.get(),
                    .x_stride = s.k,
                    .w = plain_weight(Half::kBF16, w.get() + i % copies * size),
                    .y = y.get(),
                    .y_stride = s.n,
                    .bias = nullptr,
                    .add_to_y = s.add,
                    .m = m,
                    .n = s.n,
                    .k = s.k,
                    .gated = s.gated};
  };
  const auto plain = [&](int i) {
    GemmArgs p = args(i);
    if (s.gated) {
      p.gated = false;
      p.n = w_rows;
      p.y = wide.get();
      p.y_stride = w_rows;
    }
    return p;
  };
  std::vector<WeightView> weights;
  for (int i = 0; i < copies; ++i) weights.push_back(args(i).w);
  if (!once) {
    const char* error = lt.tune(plain(0), weights, 8, 60000, stream);
    expect(error == nullptr, error == nullptr ? "" : error);
  }
  std::vector<Contender> all;
  const auto library = [&](int i) {
    const char* failed = lt.run(plain(i), Launch(stream, true));
    if (failed != nullptr) expect(false, failed);
  };
  all.push_back({"cuBLASLt", library, {}});
  if (s.gated) {
    all.push_back({"cuBLASLt + gated_mul",
                   [&](int i) {
                     library(i);
                     CHECK_CUDA(gated_mul(Half::kBF16, Gate::kSilu, y.get(), wide.get(), m, s.n,
                                          Launch(stream, true)));
                   },
                   {}});
  }
  all.push_back(
      {"ours", [&](int i) { CHECK_CUDA(large_gemm(args(i), Launch(stream, true))); }, {}});
  if (once) {  // for a profiler
    for (Contender& c : all) c.run(0);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    return;
  }
  compete(all, stream, m > 4096 ? 250 : 100);
  const double flops = 2.0 * m * static_cast<double>(size);
  double best = 1e30;
  const auto us_of = [](const Contender& c) { return (c.us[0] + c.us[1]) / 2; };
  for (const Contender& c : all) best = std::min(best, us_of(c));
  for (const Contender& c : all) {
    std::printf("%-8s %6d %-20s %9.1f us %5.0f TFLOP/s (%5.0f, %5.0f)%s\n", s.name, m,
                c.name.c_str(), us_of(c), flops / us_of(c) / 1e6, flops / c.us[0] / 1e6,
                flops / c.us[1] / 1e6, us_of(c) == best ? " <" : "");
  }
}

void bench(GemmLt& lt, int only, bool once, cudaStream_t stream) {
  Device<Bf16> w(size_t{512} << 20), x(size_t{16384} * 14336), y(size_t{16384} * 14336),
      wide(size_t{16384} * 28672);
  fill_noise<<<2048, 256, 0, stream>>>(w.get(), static_cast<int64_t>(w.size()), 1.f, 7);
  fill_noise<<<2048, 256, 0, stream>>>(x.get(), static_cast<int64_t>(x.size()), 0.02f, 9);
  fill_noise<<<2048, 256, 0, stream>>>(y.get(), static_cast<int64_t>(y.size()), 1.f, 11);
  if (!once)
    bench_shape({8192, 8192, false, false, "8192^3"}, 8192, lt, w, x, y, wide, once, stream);
  for (int m : {512, 1024, 2048, 4096, 16384}) {
    if (only > 0 && m != only) continue;
    for (const Weight& s : kShapes) bench_shape(s, m, lt, w, x, y, wide, once, stream);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  const bool quick = what == "quick";
  if (what == "check" || what == "all" || quick) {
    check_type<__nv_bfloat16>(quick, stream);
    check_type<__half>(quick, stream);
    std::printf("large gemm checks: %d failures\n", failures);
  }
  if (what != "check" && !quick) {
    Device<uint8_t> workspace(kWorkspace);
    std::unique_ptr<GemmLt> lt;
    const char* error = GemmLt::create(workspace.get(), kWorkspace, lt);
    if (error != nullptr) {
      std::printf("%s\n", error);
      return 1;
    }
    bench(*lt, argc > 2 ? std::atoi(argv[2]) : 0, what == "once", stream);
  }
  return failures == 0 ? 0 : 1;
}
