// The streaming GEMM on a Hopper GPU: every cut against float64, then times of the cuts beside
// cuBLASLt and the machine's read bandwidth.
//   ./stream_gemm_test [check|quick|bench|sweep]     sources: programs.mjs; quick: few cases, for
//   compute-sanitizer; sweep: all cuts
#include <array>
#include <memory>

#include "cuda/gemm/gemm_kernels.h"
#include "cuda/gemm/gemm_lt.h"
#include "cuda/gemm/stream_gemm.h"
#include "cuda/rows/activation.h"
#include "cuda/rows/norm.h"
#include "gemm_cases.cuh"
#include "gpu_test.cuh"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

// In place of gemm_kernels.cpp: the tuner has cuBLASLt alone to choose from, which is what is
// measured against.
std::span<const GemmKernel> inferd::cuda::gemm_kernels() { return {}; }

namespace {

std::string name_of(const StreamGemmCut& cut) {
  char name[80];
  std::snprintf(name, sizeof name, "%dx%d a%d d%d s%d%s", cut.groups * 64, cut.columns, cut.across,
                cut.down, cut.splits, cut.halved ? " halved" : "");
  return name;
}

int checked = 0;

// All cuts up to `most` of one case.
template <typename T, typename Y>
void check_case(const GemmCase& c, size_t most, cudaStream_t stream) {
  GemmTrial<T, Y> trial(c, stream);
  const GemmArgs args = trial.args();
  std::vector<StreamGemmCut> cuts(most);
  expect(stream_gemm_takes(args), "a case that is not taken");
  cuts.resize(static_cast<size_t>(stream_gemm_cuts(args, cuts)));
  expect(!cuts.empty(), "a case without cuts");
  for (const StreamGemmCut& cut : cuts) {
    trial.check(name_of(cut), sizeof(Y) == 4 ? 1e-5 : rounding<T>,
                [&](bool early) { CHECK_CUDA(stream_gemm(args, cut, Launch(stream, early))); });
    ++checked;
  }
}

// Cuts also serve fewer rows than they were made for, down to blocks without a token.
void check_fewer(cudaStream_t stream) {
  using Half16 = __nv_bfloat16;
  const GemmTrial<Half16> full({128, 640, 4096, false, Form::kAdd, 8}, stream);
  std::vector<StreamGemmCut> cuts(64);
  cuts.resize(static_cast<size_t>(stream_gemm_cuts(full.args(), cuts)));
  std::erase_if(cuts, [](const StreamGemmCut& cut) { return cut.down == 1 || cut.splits == 1; });
  expect(!cuts.empty(), "no cut has parts of k and several rows of blocks");
  for (const int m : {1, 40, 64}) {
    GemmTrial<Half16> trial({m, 640, 4096, false, Form::kAdd, 8}, stream);
    for (const StreamGemmCut& cut : cuts) {
      trial.check("of 128 rows: " + name_of(cut), rounding<Half16>, [&](bool early) {
        CHECK_CUDA(stream_gemm(trial.args(), cut, Launch(stream, early)));
      });
      ++checked;
    }
  }
}

template <typename T>
void check_type(size_t most, cudaStream_t stream) {
  const int rows[] = {1, 17, 31, 32, 33, 64, 65, 96, 100, 127, 128};
  const std::pair<int, int> shapes[] = {{8, 8}, {104, 72}, {1000, 520}, {2216, 1160}, {640, 4096}};
  int turn = 0;
  for (int m : rows) {
    for (const auto& [n, k] : shapes) {
      const Form form = static_cast<Form>(turn % 3);
      const int extra = turn % 2 == 0 ? 3 : 8;
      const bool bias = turn / 2 % 2 == 0;
      check_case<T, T>({m, n, k, bias, form, extra}, most, stream);
      if (form != Form::kGated) {
        check_case<T, float>({m, n, k, !bias, form, extra}, most, stream);
      }
      ++turn;
    }
  }
  check_case<T, T>({40, 333, 200, true, Form::kPlain, 0}, most, stream);
  check_case<T, T>({40, 333, 200, true, Form::kGated, 1}, most, stream);
  if (std::is_same_v<T, __half>) return;
  most = kStreamGemmCuts;
  for (int m : {32, 128}) {
    check_case<T, T>({m, 4096, 14336, false, Form::kAdd, 8}, most, stream);
    check_case<T, T>({m, 14336, 4096, false, Form::kGated, 0}, most, stream);
    check_case<T, float>({m, 40008, 1024, false, Form::kPlain, 0}, most, stream);
  }
}

constexpr GemmLayer kShapes[] = {{6144, 4096, "qkv", Form::kPlain},
                                 {4096, 4096, "o", Form::kAdd},
                                 {14336, 4096, "gate_up", Form::kGated},
                                 {4096, 14336, "down", Form::kAdd},
                                 {128256, 4096, "head", Form::kPlain}};
using Bf16 = __nv_bfloat16;

// What cuBLASLt computes of a product: gated, both halves, which gated_mul then reads.
GemmArgs plain_part(GemmArgs args) {
  if (!args.gated) return args;
  args.n *= 2;
  args.y_stride = args.n;
  args.y = args.scratch;
  args.gated = false;
  return args;
}

// cuBLASLt's best; a gated product is its two steps.
double lt_time(GemmBench& bench, GemmLt& lt, const GemmLayer& s, int m) {
  const Launch on(bench.stream, true);
  const int copies = bench.copies(s);
  const auto plain = [&](int i) { return plain_part(bench.args(s, m, i * s.values())); };
  std::vector<WeightView> weights;
  for (int i = 0; i < copies; ++i) weights.push_back(plain(i).w);
  const char* error = lt.tune(plain(0), weights, 8, 20000, on);
  expect(error == nullptr, error == nullptr ? "" : error);
  return time_in_graph(bench.stream, copies, 9, [&](int i) {
    const char* failed = lt.run(plain(i), on);
    if (failed != nullptr) expect(false, failed);
    if (s.gated()) {
      CHECK_CUDA(
          gated_mul(Half::kBF16, Gate::kSilu, bench.y.get(), bench.scratch.get(), m, s.n, on));
    }
  });
}

constexpr int kRows[] = {32, 64, 128};
// The fastest cut measured for [shape][rows].
using Best = std::array<std::array<StreamGemmCut, std::size(kRows)>, std::size(kShapes)>;

Best bench_shapes(GemmBench& bench, size_t most, GemmLt* lt) {
  Best fastest;
  std::printf(
      "us of a linear layer, early starts; tile tokens x rows of w, a across d down s splits\n");
  for (size_t shape = 0; shape < std::size(kShapes); ++shape) {
    for (size_t row = 0; row < std::size(kRows); ++row) {
      const GemmLayer& s = kShapes[shape];
      const int m = kRows[row];
      const double floor = bench.floor(s);
      std::printf("%-8s %4d floor %6.1f", s.name, m, floor);
      std::fflush(stdout);
      if (lt != nullptr) std::printf(" lt %6.1f", lt_time(bench, *lt, s, m));
      std::vector<StreamGemmCut> cuts(most);
      cuts.resize(static_cast<size_t>(stream_gemm_cuts(bench.args(s, m, 0), cuts)));
      std::vector<std::pair<double, size_t>> times;
      for (size_t i = 0; i < cuts.size(); ++i) {
        const double us = time_in_graph(bench.stream, bench.copies(s), 9, [&](int turn) {
          CHECK_CUDA(stream_gemm(bench.args(s, m, turn * s.values()), cuts[i],
                                 Launch(bench.stream, true)));
        });
        times.push_back({us, i});
      }
      std::sort(times.begin(), times.end());
      fastest[shape][row] = cuts[times[0].second];
      std::printf(" best %6.1f %3.0f%% |", times[0].first, 100 * floor / times[0].first);
      for (const auto& [us, i] : times) {  // each with its place in the model's order
        std::printf(" %dx%d:a%dd%ds%d%s %.1f #%zu", cuts[i].groups * 64, cuts[i].columns,
                    cuts[i].across, cuts[i].down, cuts[i].splits, cuts[i].halved ? "h" : "", us, i);
      }
      std::printf("\n");
    }
  }
  return fastest;
}

// A decode layer whose attention is a small kernel: norm, qkv, add, o (+ y), norm, gate_up with
// silu, down (+ y), as captured. Bit i of `streamed`: linear i is by its fastest cut, else by
// cuBLASLt.
double layer_time(GemmBench& bench, GemmLt& lt, const Best& best, size_t row, unsigned streamed,
                  bool early = true) {
  constexpr int kLayers = 12;
  const Launch on(bench.stream, true);
  const int m = kRows[row];
  int64_t layer_size = 0;
  for (int i = 0; i < 4; ++i) layer_size += kShapes[i].values();
  Device<float> weight(noisy<float>(4096, 1.f, 1));
  Device<Bf16> residual(noisy<Bf16>(static_cast<size_t>(m) * 4096, 1.f, 3));
  return time_in_graph(bench.stream, kLayers, 9, [&](int layer) {
    int64_t at = layer * layer_size;
    for (size_t i = 0; i < 4; ++i) {
      const GemmLayer& s = kShapes[i];
      if (i == 0 || i == 2) {
        CHECK_CUDA(rms_norm(Half::kBF16, bench.x.get(), bench.y.get(), nullptr, weight.get(), m,
                            4096, 1e-5f, on));
      } else if (i == 1) {
        CHECK_CUDA(add(Half::kBF16, bench.x.get(), residual.get(), int64_t{4096} * m, 1.f, on));
      }
      const GemmArgs args = bench.args(s, m, at);
      at += s.values();
      if (streamed >> i & 1) {
        CHECK_CUDA(stream_gemm(args, best[i][row], Launch(bench.stream, early)));
        continue;
      }
      const char* failed = lt.run(plain_part(args), on);
      if (failed != nullptr) expect(false, failed);
      if (s.gated()) {
        CHECK_CUDA(
            gated_mul(Half::kBF16, Gate::kSilu, bench.y.get(), bench.scratch.get(), m, s.n, on));
      }
    }
  });
}

void bench_layer(GemmBench& bench, GemmLt& lt, const Best& best) {
  std::printf(
      "decode layer, attention left out, us: m, cuBLASLt, streamed: all, gate_up, gate_up "
      "and down, all but qkv; all without early starts\n");
  for (size_t row = 0; row < std::size(kRows); ++row) {
    std::printf("%4d", kRows[row]);
    for (const unsigned streamed : {0u, 15u, 4u, 12u, 14u}) {
      std::printf(" %8.1f", layer_time(bench, lt, best, row, streamed));
    }
    std::printf(" %8.1f", layer_time(bench, lt, best, row, 15, false));
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  if (what == "quick") {
    for (int m : {17, 100, 128})
      check_case<__half, __half>({m, 1000, 520, true, Form::kGated, 3}, 6, stream);
    check_case<__nv_bfloat16, float>({40, 104, 1160, true, Form::kPlain, 0}, 6, stream);
    check_case<__nv_bfloat16, __nv_bfloat16>({120, 104, 1160, false, Form::kAdd, 8}, 6, stream);
    std::printf("stream gemm: %d checks, %d failures\n", checked, failures);
  } else if (what != "bench" && what != "sweep") {
    check_type<__nv_bfloat16>(24, stream);
    check_type<__half>(24, stream);
    check_fewer(stream);
    std::printf("stream gemm: %d checks, %d failures\n", checked, failures);
  }
  if (what != "check" && what != "quick") {
    GemmBench bench(stream, 128, 2 * 131072);
    const size_t most = what == "sweep" ? 64 : kStreamGemmCuts;
    Device<uint8_t> workspace(32 << 20);
    std::unique_ptr<GemmLt> lt;
    const char* error = GemmLt::create(workspace.get(), 32 << 20, lt);
    expect(error == nullptr, error == nullptr ? "" : error);
    if (error == nullptr) bench_layer(bench, *lt, bench_shapes(bench, most, lt.get()));
  }
  return failures == 0 ? 0 : 1;
}
