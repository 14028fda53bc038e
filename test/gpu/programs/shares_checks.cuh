// Sums of which each of two ranks keeps half of the rows (cuda/rank_halves.cpp), bit by bit: the
// kernel that adds and norms, and the way of both halves through the pipe. The sum that is asked
// for is made by the host, its norm by the kernel that norms alone.
#pragma once
#include <array>
#include <cstring>
#include <memory>

#include "cuda/ranks/collectives.h"
#include "cuda/ranks/sum_norm.h"
#include "cuda/ranks/sum_pipe.h"
#include "cuda/rows/norm.h"
#include "gpu_test.cuh"
#include "rank_set.cuh"

namespace gpu_test {

// What comes of `rows` rows of `width` values with one part of each rank, on the current device.
template <typename T>
struct SumNormCase {
  static constexpr float kScale = 0.5f, kEps = 1e-5f;
  int64_t rows;
  int32_t width;
  std::array<std::vector<T>, 2> parts;
  std::vector<T> old, sum, normed;
  std::vector<float> weight;

  SumNormCase(int64_t rows, int32_t width) : rows(rows), width(width) {
    const auto values = static_cast<size_t>(rows * width);
    for (uint32_t r = 0; r < 2; ++r) parts[r] = noisy<T>(values, 1, 5 + r);
    old = noisy<T>(values, 2, 77);
    for (int32_t i = 0; i < width; ++i) weight.push_back(0.5f + static_cast<float>(i % 7) / 8);
    for (size_t i = 0; i < values; ++i) {
      const float both = gpu_test::to_float(parts[0][i]) + gpu_test::to_float(parts[1][i]);
      sum.push_back(rounded<T>(std::fma(kScale, both, gpu_test::to_float(old[i]))));
    }
    Device<T> x(sum), out(old);
    Device<float> scales(weight);
    CHECK_CUDA(inferd::cuda::rms_norm(half_of<T>, out.get(), x.get(), nullptr, scales.get(), rows,
                                      width, kEps, inferd::cuda::Launch(nullptr)));
    normed = out.download();
  }
  inferd::cuda::SumNormArgs args(T* out, T* residual, const void* first, const void* second,
                                 const float* scales, int64_t count) const {
    return {.out = out,
            .residual = residual,
            .first = first,
            .second = second,
            .scale = kScale,
            .weight = scales,
            .eps = kEps,
            .rows = count,
            .width = width};
  }
};

template <typename T>
void check_sum_norm(const char* name) {
  for (const auto& [rows, width] :
       {std::pair{1, 8}, std::pair{5, 264}, std::pair{3, 4096}, std::pair{2, 16384}}) {
    const SumNormCase<T> c(rows, width);
    Device<T> first(c.parts[0]), second(c.parts[1]), residual(c.old), out(c.old);
    Device<float> scales(c.weight);
    CHECK_CUDA(inferd::cuda::sum_rms_norm(
        half_of<T>,
        c.args(out.get(), residual.get(), first.get(), second.get(), scales.get(), rows),
        inferd::cuda::Launch(nullptr)));
    CHECK_CUDA(cudaDeviceSynchronize());
    char text[120];
    std::snprintf(text, sizeof text, "sum and norm of %d rows of %d %s", rows, width, name);
    const std::vector<T> sum = residual.download(), normed = out.download();
    expect(std::memcmp(sum.data(), c.sum.data(), sum.size() * sizeof(T)) == 0 &&
               std::memcmp(normed.data(), c.normed.data(), normed.size() * sizeof(T)) == 0,
           text);
  }
  Device<T> any(std::vector<T>(16));
  const inferd::cuda::SumNormArgs odd{.out = any.get(),
                                      .residual = any.get(),
                                      .first = any.get(),
                                      .second = any.get(),
                                      .scale = 1,
                                      .weight = nullptr,
                                      .eps = 0,
                                      .rows = 1,
                                      .width = 12};
  expect(inferd::cuda::sum_rms_norm(half_of<T>, odd, inferd::cuda::Launch(nullptr)) ==
             cudaErrorInvalidValue,
         "a width that is no multiple of 8 is refused");
}

// Rank 0 keeps rows [0, middle), rank 1 the others. Several times through one pipe, late by turns.
template <typename T>
void check_halves(Ranks& ranks, const char* name) {
  using inferd::cuda::SumPipe;
  constexpr int64_t kRows = 700, kMiddle = 512;
  constexpr int32_t kWidth = 1024, kTimes = 5;
  CHECK_CUDA(cudaSetDevice(ranks.of[0].device));
  const SumNormCase<T> c(kRows, kWidth);
  std::array<std::unique_ptr<SumPipe>, 2> pipes;
  for (int r = 0; r < 2; ++r) {
    CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
    pipes[r] = std::make_unique<SumPipe>();
    // The flags of a new pipe begin again.
    CHECK_CUDA(
        cudaMemset(inferd::cuda::pushed_flag(ranks.of[r].links, r, 0), 0, 2 * sizeof(uint32_t)));
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  for (int time = 0; time < kTimes; ++time) {
    std::array<std::vector<T>, 2> sums, own, come;
    ranks.each([&](int r) {
      const Rank& rank = ranks.of[r];
      CHECK_CUDA(cudaSetDevice(rank.device));
      const int64_t first = r == 0 ? 0 : kMiddle, count = r == 0 ? kMiddle : kRows - kMiddle;
      const int64_t first_other = kMiddle - first, other = kRows - count;
      Device<T> part(c.parts[r]), residual(c.old), normed(c.old), arrived(c.old);
      Device<float> scales(c.weight);
      CHECK_CUDA(cudaDeviceSynchronize());
      if (time % 2 == r) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto bytes = [](int64_t n) { return n * kWidth * static_cast<int64_t>(sizeof(T)); };
      T* mine = part.get() + first * kWidth;
      pipes[r]->push(rank.links, part.get() + first_other * kWidth, bytes(other), rank.stream);
      const void* theirs = pipes[r]->await(rank.links, rank.stream);
      CHECK_CUDA(inferd::cuda::sum_rms_norm(
          half_of<T>,
          c.args(normed.get() + first * kWidth, residual.get() + first * kWidth,
                 r == 0 ? mine : theirs, r == 0 ? theirs : mine, scales.get(), count),
          inferd::cuda::Launch(rank.stream)));
      pipes[r]->push(rank.links, normed.get() + first * kWidth, bytes(count), rank.stream);
      CHECK_CUDA(cudaMemcpyAsync(
          arrived.get() + first_other * kWidth, pipes[r]->await(rank.links, rank.stream),
          static_cast<size_t>(bytes(other)), cudaMemcpyDeviceToDevice, rank.stream));
      CHECK_CUDA(cudaStreamSynchronize(rank.stream));
      sums[r] = residual.download();
      own[r] = normed.download();
      come[r] = arrived.download();
    });
    const auto same = [&](const std::vector<T>& got, const std::vector<T>& want, int64_t first,
                          int64_t end) {
      return std::memcmp(got.data() + first * kWidth, want.data() + first * kWidth,
                         static_cast<size_t>((end - first) * kWidth) * sizeof(T)) == 0;
    };
    char text[120];
    std::snprintf(text, sizeof text, "halves of %s, time %d", name, time);
    expect(same(sums[0], c.sum, 0, kMiddle) && same(sums[1], c.sum, kMiddle, kRows) &&
               same(own[0], c.normed, 0, kMiddle) && same(own[1], c.normed, kMiddle, kRows) &&
               same(come[0], c.normed, kMiddle, kRows) && same(come[1], c.normed, 0, kMiddle),
           text);
  }
}

}  // namespace gpu_test
