// Cases of a product of plain weights, for the test programs of kernels that cut it in several
// ways: what it is given, what should come of it, and the checks of one way; and the operands that
// ways are timed with.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "gemm_reference.cuh"
#include "gpu_test.cuh"

namespace gpu_test {

enum class Form { kPlain, kAdd, kGated };

struct GemmCase {
  int m, n, k;
  bool bias;
  Form form;
  int y_extra = 8;  // columns between the rows of y, which nothing may touch

  bool gated() const { return form == Form::kGated; }
  bool add() const { return form == Form::kAdd; }
  std::string name() const {
    char text[120];
    std::snprintf(text, sizeof text, "m %d n %d k %d%s%s stride +%d", m, n, k, bias ? " bias" : "",
                  add()     ? " add"
                  : gated() ? " gated"
                            : "",
                  y_extra);
    return text;
  }
};

// The operands of a case in device memory, x and w of T, y of Y.
template <typename T, typename Y = T>
class GemmTrial {
 public:
  GemmTrial(const GemmCase& c, cudaStream_t stream)
      : case_(c),
        stream_(stream),
        x_(noisy<T>(static_cast<size_t>(c.m) * (c.k + 8), 1.f, 1)),
        w_(noisy<T>(static_cast<size_t>(w_rows(c)) * c.k, w_scale(c), 2)),
        bias_(noisy<Y>(static_cast<size_t>(w_rows(c)), 3.f, 3)),
        before_(noisy<Y>(static_cast<size_t>(c.m) * (c.n + c.y_extra), 3.f, 4)),
        y_(before_) {
    Device<double> wants(static_cast<size_t>(c.m) * c.n);
    reference<T>(wants.get(), args(), y_.get(), nullptr, stream);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    want_ = wants.download();
  }

  // With neither spare memory nor tickets.
  GemmArgs args() const {
    return {.type = half_of<T>,
            .out = std::is_same_v<Y, float> ? inferd::cuda::GemmOut::kF32
                                            : inferd::cuda::GemmOut::kHalf,
            .x = x_.get(),
            .x_stride = case_.k + 8,
            .w = inferd::cuda::plain_weight(half_of<T>, w_.get()),
            .y = y_.get(),
            .y_stride = case_.n + case_.y_extra,
            .bias = case_.bias ? bias_.get() : nullptr,
            .add_to_y = case_.add(),
            .m = case_.m,
            .n = case_.n,
            .k = case_.k,
            .gated = case_.gated()};
  }

  // y as it was; without a sum what is to be written is NaN.
  void reset() {
    std::vector<Y> start = before_;
    const size_t width = static_cast<size_t>(case_.n + case_.y_extra);
    for (size_t i = 0; i < start.size() && !case_.add(); ++i) {
      if (i % width < static_cast<size_t>(case_.n))
        std::memset(static_cast<void*>(&start[i]), 0xff, sizeof(Y));
    }
    y_.upload(start);
  }

  // One way to compute it: run(early) enqueues the product of args(), the second time with an early
  // start. What it writes has to be right, to lie in its columns, and to be the same both times.
  template <typename Run>
  void check(const std::string& way, double bound, const Run& run) {
    const std::string name = type_name() + " " + case_.name() + ", " + way;
    std::vector<Y> runs[2];
    for (std::vector<Y>& result : runs) {
      reset();
      run(&result == &runs[1]);
      const cudaError_t error = cudaStreamSynchronize(stream_);
      if (error != cudaSuccess) std::printf("%s\n", name.c_str());
      CHECK_CUDA(error);
      result = y_.download();
    }
    const Result<Y> got(args(), runs[0], before_);
    const double error = relative_error(got.values, want_);
    expect(error < bound, name + " error " + std::to_string(error));
    expect(got.rest_same, name + " wrote outside of its columns");
    expect(std::memcmp(runs[0].data(), runs[1].data(), runs[0].size() * sizeof(Y)) == 0,
           name + " differs on repeat");
  }

 private:
  static int w_rows(const GemmCase& c) { return c.gated() ? 2 * c.n : c.n; }
  // Keeps silu off its flat ends.
  static float w_scale(const GemmCase& c) { return c.gated() ? 0.1f : 1.f; }
  static std::string type_name() {
    return std::string(half_of<T> == Half::kF16 ? "f16" : "bf16") +
           (std::is_same_v<Y, float> ? "->f32" : "");
  }

  GemmCase case_;
  cudaStream_t stream_;
  Device<T> x_, w_;
  Device<Y> bias_;
  std::vector<Y> before_;
  Device<Y> y_;
  std::vector<double> want_;
};

// A linear layer of a model, as it is timed.
struct GemmLayer {
  int n, k;  // of y
  const char* name;
  Form form;

  bool gated() const { return form == Form::kGated; }
  int64_t values() const { return int64_t{n} * k * (gated() ? 2 : 1); }
};

// Operands of bf16 for up to `rows` rows. The weights are those of many layers, which take turns so
// that L2 holds none of them.
struct GemmBench {
  using Bf16 = __nv_bfloat16;

  // y_width: values of 16 bits in the longest row of y.
  GemmBench(cudaStream_t on, int rows, int y_width)
      : stream(on),
        w(size_t{3} << 30),
        x(static_cast<size_t>(rows) * 16384),
        y(static_cast<size_t>(rows) * y_width),
        scratch(static_cast<size_t>(rows) * 28672) {
    fill_noise<<<2048, 256, 0, stream>>>(w.get(), static_cast<int64_t>(w.size()), 1.f, 7);
    fill_noise<<<256, 256, 0, stream>>>(x.get(), static_cast<int64_t>(x.size()), 1.f, 9);
    fill_noise<<<256, 256, 0, stream>>>(y.get(), static_cast<int64_t>(y.size()), 1.f, 9);
    ceiling = read_ceiling(w.get(), w.size() * sizeof(Bf16), stream);
    std::printf("read ceiling %.0f GB/s\n", ceiling);
  }
  // The weights of how many such layers take turns.
  int copies(const GemmLayer& s) const {
    return static_cast<int>(
        std::clamp<int64_t>(static_cast<int64_t>(w.size()) / s.values(), 1, 24));
  }
  // Microseconds in which the weights could be read.
  double floor(const GemmLayer& s) const {
    return static_cast<double>(s.values()) * sizeof(Bf16) / ceiling / 1e3;
  }
  // With the weights that begin at value `at`.
  inferd::cuda::GemmArgs args(const GemmLayer& s, int m, int64_t at) const {
    return {.type = Half::kBF16,
            .out = s.n == 128256 ? inferd::cuda::GemmOut::kF32 : inferd::cuda::GemmOut::kHalf,
            .x = x.get(),
            .x_stride = s.k,
            .w = inferd::cuda::plain_weight(Half::kBF16, w.get() + at),
            .y = y.get(),
            .y_stride = s.n,
            .bias = nullptr,
            .add_to_y = s.form == Form::kAdd,
            .m = m,
            .n = s.n,
            .k = s.k,
            .gated = s.gated(),
            .scratch = scratch.get()};
  }

  cudaStream_t stream;
  Device<Bf16> w, x, y, scratch;
  double ceiling = 0;  // GB/s
};

}  // namespace gpu_test
