// Cases of a product of plain weights, for the test programs of kernels that cut it in several
// ways: what it is given, what should come of it, and the checks of one way.
#pragma once
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "gemm_reference.cuh"

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

}  // namespace gpu_test
