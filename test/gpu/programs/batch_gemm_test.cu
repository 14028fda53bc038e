// The GEMM of full decode batches on a Hopper GPU: every cut against float64, then times of the
// cuts beside cuBLASLt's best and the machine's read bandwidth.
//   ./batch_gemm_test [check|quick|bench [m]]     sources: programs.mjs; quick: few cases, for
//   compute-sanitizer
#include <array>
#include <cstring>
#include <memory>

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

enum class Form { kPlain, kAdd, kGated };

struct Case {
  int m, n, k;
  bool bias;
  Form form;
};

// What splits meet in.
struct Meeting {
  Device<uint8_t> partials{size_t{64} << 20};
  Device<int32_t> tickets{std::vector<int32_t>(kGemmTickets, 0)};
};

int checked = 0;

template <typename T>
void check_case(const Case& c, const Meeting& meeting, cudaStream_t stream) {
  const int64_t x_stride = c.k + 8, y_stride = c.n + 8;
  const int w_rows = c.form == Form::kGated ? 2 * c.n : c.n;
  const float scale = c.form == Form::kGated ? 0.1f : 1.f;  // keeps silu off its flat ends
  Device<T> x(noisy<T>(static_cast<size_t>(c.m * x_stride), 1.f, 1));
  Device<T> w(noisy<T>(static_cast<size_t>(w_rows) * c.k, scale, 2));
  Device<T> bias(noisy<T>(static_cast<size_t>(w_rows), 3.f, 3));
  const std::vector<T> before = noisy<T>(static_cast<size_t>(c.m * y_stride), 3.f, 4);
  Device<T> old(before);
  Device<double> wants(static_cast<size_t>(c.m) * c.n);
  GemmArgs args = {.type = half_of<T>,
                   .out = GemmOut::kHalf,
                   .x = x.get(),
                   .x_stride = x_stride,
                   .w = plain_weight(half_of<T>, w.get()),
                   .y = nullptr,
                   .y_stride = y_stride,
                   .bias = c.bias ? bias.get() : nullptr,
                   .add_to_y = c.form == Form::kAdd,
                   .m = c.m,
                   .n = c.n,
                   .k = c.k,
                   .gated = c.form == Form::kGated,
                   .spare = {meeting.partials.get(), meeting.partials.size()},
                   .tickets = meeting.tickets.get()};
  reference<T>(wants.get(), args, old.get(), nullptr, stream);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const std::vector<double> want = wants.download();
  // batch_gemm_takes asks for y as well.
  Device<T> y(before);
  args.y = y.get();
  expect(batch_gemm_takes(args), "a case that is not taken");
  std::array<BatchGemmCut, 16> room;
  const std::span<BatchGemmCut> cuts(room.data(), static_cast<size_t>(batch_gemm_cuts(args, room)));
  expect(!cuts.empty(), "a case without cuts");
  for (const BatchGemmCut& cut : cuts) {
    char name[160];
    std::snprintf(name, sizeof name, "%s m %d n %d k %d%s%s, %d wide, %d splits",
                  half_of<T> == Half::kF16 ? "f16" : "bf16", c.m, c.n, c.k, c.bias ? " bias" : "",
                  c.form == Form::kAdd     ? " add"
                  : c.form == Form::kGated ? " gated"
                                           : "",
                  cut.columns, cut.splits);
    std::vector<T> runs[2];
    for (std::vector<T>& run : runs) {
      y.upload(before);
      CHECK_CUDA(batch_gemm(args, cut, Launch(stream, true)));
      const cudaError_t error = cudaStreamSynchronize(stream);
      if (error != cudaSuccess) std::printf("%s\n", name);
      CHECK_CUDA(error);
      run = y.download();
    }
    const Result<T> got(args, runs[0], before);
    const double error = relative_error(got.values, want);
    expect(error < rounding<T>, std::string(name) + " error " + std::to_string(error));
    expect(got.rest_same, std::string(name) + " wrote outside of its columns");
    expect(std::memcmp(runs[0].data(), runs[1].data(), runs[0].size() * sizeof(T)) == 0,
           std::string(name) + " differs on repeat");
    ++checked;
  }
}

template <typename T>
void check_type(bool quick, const Meeting& meeting, cudaStream_t stream) {
  int turn = 0;
  for (const int m : {1, 129, 200, 256}) {
    if (quick && m != 129) continue;
    for (const auto& [n, k] : {std::pair{8, 8}, {264, 72}, {1096, 520}, {1024, 4104}}) {
      for (const Form form : {Form::kPlain, Form::kAdd, Form::kGated})
        check_case<T>({m, n, k, ++turn % 2 == 0, form}, meeting, stream);
    }
  }
  if (quick) return;
  check_case<T>({256, 4096, 14336, false, Form::kAdd}, meeting, stream);
  check_case<T>({256, 14336, 4096, false, Form::kGated}, meeting, stream);
  check_case<T>({250, 6144, 4096, true, Form::kPlain}, meeting, stream);
}

struct Weight {
  int n, k;  // of y
  const char* name;
  Form form;
};
constexpr Weight kShapes[] = {
    {6144, 4096, "qkv", Form::kPlain},           {4096, 4096, "o", Form::kAdd},
    {14336, 4096, "gate_up", Form::kGated},      {4096, 14336, "down", Form::kAdd},
    {12288, 4096, "qwen gate_up", Form::kGated}, {4096, 12288, "qwen down", Form::kAdd}};
using Bf16 = __nv_bfloat16;

void bench(int only, const Meeting& meeting, GemmLt& lt, cudaStream_t stream) {
  Device<Bf16> w(size_t{3} << 30), x(size_t{768} * 16384), y(size_t{768} * 16384),
      scratch(size_t{768} * 28672);
  fill_noise<<<2048, 256, 0, stream>>>(w.get(), static_cast<int64_t>(w.size()), 1.f, 7);
  fill_noise<<<256, 256, 0, stream>>>(x.get(), static_cast<int64_t>(x.size()), 1.f, 9);
  fill_noise<<<256, 256, 0, stream>>>(y.get(), static_cast<int64_t>(y.size()), 1.f, 9);
  const double ceiling = read_ceiling(w.get(), w.size() * sizeof(Bf16), stream);
  std::printf("read ceiling %.0f GB/s; us of a linear layer, early starts\n", ceiling);
  for (const Weight& s : kShapes) {
    for (const int m : {192, 256}) {
      if (only > 0 && m != only) continue;
      const bool gated = s.form == Form::kGated;
      const int64_t size = static_cast<int64_t>(s.n) * s.k * (gated ? 2 : 1);
      const int copies =
          static_cast<int>(std::clamp<int64_t>(static_cast<int64_t>(w.size()) / size, 1, 24));
      const auto args = [&](int i) {
        return GemmArgs{.type = Half::kBF16,
                        .out = GemmOut::kHalf,
                        .x = x.get(),
                        .x_stride = s.k,
                        .w = plain_weight(Half::kBF16, w.get() + i * size),
                        .y = y.get(),
                        .y_stride = s.n,
                        .bias = nullptr,
                        .add_to_y = s.form == Form::kAdd,
                        .m = m,
                        .n = s.n,
                        .k = s.k,
                        .gated = gated,
                        .scratch = scratch.get(),
                        .spare = {meeting.partials.get(), meeting.partials.size()},
                        .tickets = meeting.tickets.get()};
      };
      const Launch on(stream, true);
      std::vector<WeightView> weights;
      for (int i = 0; i < copies; ++i) weights.push_back(args(i).w);
      const char* error = lt.tune(args(0), weights, 10, 20000, on);
      expect(error == nullptr, error == nullptr ? "" : error);
      const double library = time_in_graph(stream, copies, 9, [&](int i) {
        const char* failed = lt.run(args(i), on);
        if (failed != nullptr) expect(false, failed);
      });
      std::printf("%-12s %4d floor %6.1f, %5.0f GFLOP, lt %6.1f |", s.name, m,
                  static_cast<double>(size) * 2 / ceiling / 1e3,
                  2e-9 * m * static_cast<double>(size), library);
      std::array<BatchGemmCut, 16> room;
      const auto count = static_cast<size_t>(batch_gemm_cuts(args(0), room));
      for (size_t i = 0; i < count; ++i) {
        const double us = time_in_graph(
            stream, copies, 9, [&](int turn) { CHECK_CUDA(batch_gemm(args(turn), room[i], on)); });
        std::printf(" %ds%d %.1f", room[i].columns, room[i].splits, us);
      }
      std::printf("\n");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  const Meeting meeting;
  const bool quick = what == "quick";
  if (what != "bench") {
    check_type<__nv_bfloat16>(quick, meeting, stream);
    check_type<__half>(quick, meeting, stream);
    std::printf("batch gemm: %d checks, %d failures\n", checked, failures);
  }
  if (what != "check" && !quick) {
    Device<uint8_t> workspace(size_t{64} << 20);
    std::unique_ptr<GemmLt> lt;
    const char* error = GemmLt::create(workspace.get(), workspace.size(), lt);
    expect(error == nullptr, error == nullptr ? "" : error);
    if (error == nullptr) bench(argc > 2 ? std::atoi(argv[2]) : 0, meeting, *lt, stream);
  }
  return failures == 0 ? 0 : 1;
}
