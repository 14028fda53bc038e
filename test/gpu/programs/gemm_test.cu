// Linear layers on a GPU: correctness of the small GEMM and of cuBLASLt calls against float64, then
// times of both beside the machine's read bandwidth.
//   ./gemm_test [check|quick|bench|small|norm]     sources: programs.mjs; quick: few shapes, for
//   compute-sanitizer; small: times without cuBLASLt; norm: times with a norm ahead alone
#include <cstring>

#include "cuda/attention/rope_kv.h"
#include "cuda/gemm/gemm_lt.h"
#include "cuda/gemm/small_gemm.h"
#include "cuda/rows/activation.h"
#include "cuda/rows/norm.h"
#include "gemm_cases.cuh"
#include "gpu_test.cuh"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

namespace {

constexpr size_t kWorkspace = 32 << 20;

struct Case {
  int m, n, k;
  bool bias, add, gated = false, norm = false;
};
constexpr float kEps = 0.01f;  // visible beside mean squares of 1/3

template <typename T, typename Y>
void check_case(const Case& c, GemmLt* lt, cudaStream_t stream) {
  const bool packed = c.gated && lt != nullptr;  // what the activation after cuBLASLt asks for
  const bool normed_first = c.norm && lt != nullptr;
  const int64_t x_stride = normed_first ? c.k : c.k + 8, y_stride = packed ? c.n : c.n + 3;
  const std::vector<T> host_x = noisy<T>(static_cast<size_t>(c.m * x_stride), 1.f, 1);
  Device<T> x(host_x), normed_x(static_cast<size_t>(normed_first ? c.m * c.k : 0));
  Device<double> factors(row_factors(host_x, c.m, x_stride, c.k, kEps));
  const int rows = c.gated ? 2 * c.n : c.n;  // of w
  Device<T> w(noisy<T>(static_cast<size_t>(rows) * c.k, c.gated ? 0.1f : 1.f, 2));
  Device<Y> bias(noisy<Y>(static_cast<size_t>(rows), 3.f, 3));
  const std::vector<Y> before = noisy<Y>(static_cast<size_t>(c.m * y_stride), 3.f, 4);
  Device<Y> y(before), old(before);
  Device<double> want(static_cast<size_t>(c.m) * c.n);
  Device<T> scratch(static_cast<size_t>(c.gated ? c.m * rows : 0));
  const GemmArgs args = {.type = half_of<T>,
                         .out = std::is_same_v<Y, float> ? GemmOut::kF32 : GemmOut::kHalf,
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
                         .gated = c.gated,
                         .scratch = scratch.get(),
                         .norm_x = c.norm,
                         .norm_eps = kEps,
                         .norm_scratch = normed_x.get()};
  reference<T>(want.get(), args, old.get(), c.norm ? factors.get() : nullptr, stream);
  char name[120];
  std::snprintf(name, sizeof name, "%s %s->%s m %d n %d k %d%s%s%s%s",
                lt != nullptr ? "lt" : "small", half_of<T> == Half::kF16 ? "f16" : "bf16",
                sizeof(Y) == 4 ? "f32" : "half", c.m, c.n, c.k, c.bias ? " bias" : "",
                c.add ? " add" : "", c.gated ? " gated" : "", c.norm ? " norm" : "");
  if (lt != nullptr) {
    const char* error = lt->run(args, stream);
    expect(error == nullptr, std::string(name) + ": " + (error == nullptr ? "" : error));
    if (error != nullptr) return;
  } else {
    CHECK_CUDA(small_gemm(args, Launch(stream, true)));
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const std::vector<Y> all = y.download();
  const Result<Y> got(args, all, before);
  const double error = relative_error(got.values, want.download());
  // cuBLASLt's product is rounded before the activation, and so is what it takes from a norm.
  const double bound = sizeof(Y) == 4           ? 1e-5
                       : packed || normed_first ? 3 * rounding<T>
                                                : rounding<T>;
  expect(error < bound, std::string(name) + " error " + std::to_string(error));
  expect(got.rest_same, std::string(name) + " wrote outside of its columns");
  if (lt == nullptr) {
    Device<Y> again(before);
    GemmArgs other = args;
    other.y = again.get();
    CHECK_CUDA(small_gemm(other, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    expect(std::memcmp(again.download().data(), all.data(), all.size() * sizeof(Y)) == 0,
           std::string(name) + " differs on repeat");
  }
}

template <typename T>
void check_type(GemmLt& lt, bool quick, cudaStream_t stream) {
  for (int m : {1, 2, 7, 8, 9, 15, 16}) {
    for (int n : {1, 15, 17, 320, 2213}) {
      for (int k : {8, 72, 2056, 4096, 4104}) {
        if (quick && (n > 320 || k > 2056 || m % 7 > 1)) continue;
        const Case c = {m, n, k, (m + n) % 2 == 0, (m + k / 8) % 3 == 0};
        check_case<T, T>(c, nullptr, stream);
        check_case<T, float>(c, nullptr, stream);
        check_case<T, T>({m, n, k, c.bias, false, true}, nullptr, stream);
        check_case<T, T>({m, n, k, c.bias, false, c.add, true}, nullptr, stream);
      }
    }
  }
  for (int m : {1, 8, 16}) {  // so many tiles that a block keeps more of them on their way
    for (int k : {264, 4096}) {
      if (quick && k > 264) continue;
      check_case<T, T>({m, 8461, k, true, m == 8, false, m != 8}, nullptr, stream);
      check_case<T, T>({m, 4231, k, true, false, true, m != 1}, nullptr, stream);
    }
  }
  if (!quick) check_case<T, T>({16, 4096, 14336, false, false}, nullptr, stream);
  for (int m : {1, 16, 17, 100, 300, 1000}) {
    for (const auto& [n, k] : {std::pair{320, 64}, {4096, 1024}, {6144, 4096}}) {
      if (quick && (n > 320 || m > 100)) continue;
      check_case<T, T>({m, n, k, m % 2 == 0, m % 3 == 0}, &lt, stream);
      check_case<T, float>({m, n, k, false, false}, &lt, stream);
      check_case<T, T>({m, n, k, m % 2 == 0, false, true}, &lt, stream);
      check_case<T, T>({m, n, k, m % 2 == 0, false, m % 3 == 0, true}, &lt, stream);
    }
  }
}

// Products of decode steps by the fastest of all ways, ours among them, as the engine has them.
template <typename T>
void check_tuned(GemmLt& lt, cudaStream_t stream) {
  std::printf("tuned, of 24, 100, 200 and 256 rows:");
  for (const int m : {24, 100, 200, 256}) {
    for (const GemmCase& c : {GemmCase{m, 6144, 4096, true, Form::kPlain},
                              {m, 4096, 12288, false, Form::kAdd},
                              {m, 12288, 4096, false, Form::kGated, 0}}) {
      GemmTrial<T> trial(c, stream);
      Device<T> scratch(static_cast<size_t>(c.gated() ? 2 * c.m * c.n : 0));
      GemmArgs args = trial.args();
      args.scratch = scratch.get();
      const char* error = lt.tune(args, {&args.w, 1}, 8, 20000, Launch(stream, true));
      expect(error == nullptr, error == nullptr ? "" : error);
      if (error != nullptr) continue;
      const char* const kernel = lt.choice(args)->kernel;
      const std::string way = kernel != nullptr ? kernel : "lt";
      std::printf(" %s", way.c_str());
      // cuBLASLt's product is rounded before the activation, and may be part by part of k.
      trial.check("tuned: " + way, 3 * rounding<T>, [&](bool early) {
        const char* failed = lt.run(args, Launch(stream, early));
        expect(failed == nullptr, failed == nullptr ? "" : failed);
      });
    }
  }
  std::printf("\n");
}

struct Weight {
  int n, k;
  const char* name;
};
constexpr Weight kShapes[] = {{6144, 4096, "qkv"},
                              {4096, 4096, "o"},
                              {28672, 4096, "gate_up"},
                              {4096, 14336, "down"},
                              {128256, 4096, "head"}};
using Bf16 = __nv_bfloat16;

struct Bench {
  Bench(cudaStream_t on)
      : stream(on), w(size_t{3} << 30), x(size_t{128} * 16384), y(size_t{256} * 131072) {
    fill_noise<<<2048, 256, 0, stream>>>(w.get(), static_cast<int64_t>(w.size()), 1.f, 7);
    fill_noise<<<256, 256, 0, stream>>>(x.get(), static_cast<int64_t>(x.size()), 1.f, 9);
    ceiling = read_ceiling(w.get(), w.size() * sizeof(Bf16), stream);
    std::printf("read ceiling %.0f GB/s\n", ceiling);
  }
  GemmArgs args(const Weight& s, int m, const Bf16* weights) const {
    const bool head = s.n == 128256;
    return {.type = Half::kBF16,
            .out = head ? GemmOut::kF32 : GemmOut::kHalf,
            .x = x.get(),
            .x_stride = s.k,
            .w = plain_weight(Half::kBF16, weights),
            .y = y.get(),
            .y_stride = s.n,
            .bias = nullptr,
            .add_to_y = false,
            .m = m,
            .n = s.n,
            .k = s.k};
  }

  cudaStream_t stream;
  Device<Bf16> w, x, y;
  double ceiling = 0;
};

// Each shape by itself, weights in turn.
void bench_shapes(Bench& bench, GemmLt* lt) {
  std::printf("%-8s %4s | %17s %17s | %8s %8s %5s %s\n", "shape", "m", "small, early us",
              "small us", "tuned us", "first us", "of rc", "choice");
  for (const Weight& s : kShapes) {
    for (int m : {1, 2, 4, 8, 16, 32, 64, 128}) {
      if (lt == nullptr && (m == 2 || m > kSmallGemmRows)) continue;
      const int64_t size = static_cast<int64_t>(s.n) * s.k;
      const int copies =
          static_cast<int>(std::clamp<int64_t>(static_cast<int64_t>(bench.w.size()) / size, 1, 24));
      const auto turn = [&](int i) { return bench.args(s, m, bench.w.get() + i * size); };
      std::vector<WeightView> weights;
      for (int i = 0; i < copies; ++i) weights.push_back(turn(i).w);
      double times[2] = {};
      for (int early = 0; early < 2 && m <= kSmallGemmRows; ++early) {
        times[early] = time_in_graph(bench.stream, copies, 9, [&](int i) {
          CHECK_CUDA(small_gemm(turn(i), Launch(bench.stream, early == 1)));
        });
      }
      const double floor = static_cast<double>(size) * 2 / bench.ceiling / 1e3;
      std::printf("%-8s %4d | %8.1f (%4.0f%%) %8.1f (%4.0f%%) |", s.name, m, times[1],
                  times[1] > 0 ? 100 * floor / times[1] : 0, times[0],
                  times[0] > 0 ? 100 * floor / times[0] : 0);
      if (lt != nullptr) {
        const char* error = lt->tune(turn(0), weights, 8, 20000, Launch(bench.stream, true));
        expect(error == nullptr, error == nullptr ? "" : error);
        if (error != nullptr) continue;
        const GemmChoice choice = *lt->choice(turn(0));
        const double us = time_in_graph(bench.stream, copies, 9, [&](int i) {
          const char* failed = lt->run(turn(i), Launch(bench.stream, true));
          if (failed != nullptr) expect(false, failed);
        });
        std::printf(" %8.1f %8.1f %4.0f%% %s of %d", us, choice.first_us, 100 * floor / us,
                    choice.kernel != nullptr ? choice.kernel : "lt", choice.candidates);
      }
      std::printf("\n");
    }
  }
}

// A norm and the linear behind it, both by our kernels, and the linear alone with norm_x; a small
// kernel ahead of each, as in a step.
void bench_norm(Bench& bench) {
  const Launch on(bench.stream, true);
  Device<float> weight(noisy<float>(4096, 1.f, 1));
  Device<Bf16> few(64);
  std::printf(
      "norm and linear, small, us: m, qkv apart, with norm_x, gate_up apart, with norm_x\n");
  for (int m : {1, 4, 8, 16}) {
    std::printf("%4d", m);
    for (const int shape : {0, 2}) {
      const Weight& s = kShapes[shape];
      const int64_t size = static_cast<int64_t>(s.n) * s.k;
      for (const bool norm_x : {false, true}) {
        const double us = time_in_graph(bench.stream, 12, 9, [&](int i) {
          CHECK_CUDA(add(Half::kBF16, few.get(), few.get(), 8, 1.f, on));
          if (!norm_x) {
            CHECK_CUDA(rms_norm(Half::kBF16, bench.x.get(), bench.x.get(), nullptr, weight.get(), m,
                                s.k, 1e-5f, on));
          }
          GemmArgs args = bench.args(s, m, bench.w.get() + i * size);
          args.norm_x = norm_x;
          args.norm_eps = 1e-5f;
          if (shape == 2) {
            args.gated = true;
            args.n /= 2;
          }
          CHECK_CUDA(small_gemm(args, on));
        });
        std::printf(" %8.1f", us);
      }
    }
    std::printf("\n");
  }
}

enum class Linear { kSmall, kSmallOnlyNarrow, kTuned };

// A decode layer without attention: norm, qkv, rope, o, norm, gate_up, silu, down, as captured.
double layer_time(Bench& bench, GemmLt* lt, int m, bool early, Linear linear) {
  constexpr int kLayers = 12;
  int64_t layer_size = 0;
  for (int i = 0; i < 4; ++i) layer_size += static_cast<int64_t>(kShapes[i].n) * kShapes[i].k;
  const Launch on(bench.stream, early);
  Device<float> weight(noisy<float>(4096, 1.f, 1)), freq(noisy<float>(64, 1.f, 2));
  Device<Bf16> residual(noisy<Bf16>(static_cast<size_t>(m) * 4096, 1.f, 3)), k(1 << 22), v(1 << 22);
  std::vector<int32_t> zeros(64, 0), slots;
  for (int i = 0; i < m; ++i) slots.push_back(i);
  Device<int32_t> tables(zeros), token_slots(slots), positions(slots);
  return time_in_graph(bench.stream, kLayers, 9, [&](int layer) {
    const Bf16* at = bench.w.get() + layer * layer_size;
    const auto multiply = [&](const Weight& s) {
      const GemmArgs args = bench.args(s, m, at);
      at += static_cast<int64_t>(s.n) * s.k;
      const bool narrow = s.n < 8192 && s.k < 8192;
      if (linear == Linear::kSmall || (linear == Linear::kSmallOnlyNarrow && narrow)) {
        CHECK_CUDA(small_gemm(args, on));
      } else {
        const char* failed = lt->run(args, on);
        if (failed != nullptr) expect(false, failed);
      }
    };
    const auto norm = [&] {
      CHECK_CUDA(rms_norm(Half::kBF16, bench.x.get(), bench.y.get(), residual.get(), weight.get(),
                          m, 4096, 1e-5f, on));
    };
    norm();
    multiply(kShapes[0]);
    CHECK_CUDA(rope_kv(Half::kBF16,
                       {.qkv = bench.y.get(),
                        .q_norm = nullptr,
                        .k_norm = nullptr,
                        .norm_eps = 0,
                        .inv_freq = freq.get(),
                        .attention_factor = 1,
                        .k_cache = k.get(),
                        .v_cache = v.get(),
                        .kv_type = KvType::kActivation,
                        .block_bytes = int64_t{8} * 16 * 128 * 2,
                        .block_tables = tables.get(),
                        .token_slots = token_slots.get(),
                        .positions = positions.get(),
                        .max_blocks = 1,
                        .tokens = m,
                        .heads = 32,
                        .kv_heads = 8,
                        .head_dim = 128,
                        .rotary_dim = 128,
                        .block_size = 16},
                       on));
    multiply(kShapes[1]);
    norm();
    multiply(kShapes[2]);
    CHECK_CUDA(gated_mul(Half::kBF16, Gate::kSilu, bench.x.get(), bench.y.get(), m, 14336, on));
    multiply(kShapes[3]);
  });
}

void bench_layer(Bench& bench, GemmLt* lt) {
  double floor = 0;
  for (int i = 0; i < 4; ++i) {
    floor += static_cast<double>(kShapes[i].n) * kShapes[i].k * 2 / bench.ceiling / 1e3;
  }
  std::printf("decode layer without attention, us (weights alone at the read ceiling: %.1f)\n",
              floor);
  std::printf("%4s %14s %14s", "m", "small, early", "small");
  if (lt != nullptr) std::printf(" %14s %14s %14s", "tuned, early", "tuned", "mixed, early");
  std::printf("\n");
  for (int m : {1, 4, 8, 16}) {
    std::printf("%4d %14.1f %14.1f", m, layer_time(bench, lt, m, true, Linear::kSmall),
                layer_time(bench, lt, m, false, Linear::kSmall));
    if (lt != nullptr) {
      std::printf(" %14.1f %14.1f %14.1f", layer_time(bench, lt, m, true, Linear::kTuned),
                  layer_time(bench, lt, m, false, Linear::kTuned),
                  layer_time(bench, lt, m, true, Linear::kSmallOnlyNarrow));
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  Device<uint8_t> workspace(kWorkspace);
  std::unique_ptr<GemmLt> lt;
  const char* error = GemmLt::create(workspace.get(), kWorkspace, lt);
  if (error != nullptr) {
    std::printf("%s\n", error);
    return 1;
  }
  const bool quick = what == "quick";
  if (what == "check" || what == "all" || quick) {
    check_type<__nv_bfloat16>(*lt, quick, stream);
    check_type<__half>(*lt, quick, stream);
    if (!quick) {
      check_tuned<__nv_bfloat16>(*lt, stream);
      check_tuned<__half>(*lt, stream);
    }
    std::printf("gemm checks: %d failures\n", failures);
  }
  if (what != "check" && !quick) {
    Bench bench(stream);
    bench_norm(bench);
    if (what == "norm") return failures == 0 ? 0 : 1;
    GemmLt* const linear = what == "small" ? nullptr : lt.get();
    bench_shapes(bench, linear);
    bench_layer(bench, linear);
  }
  return failures == 0 ? 0 : 1;
}
