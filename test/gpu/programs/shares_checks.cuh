// Sums of which each rank keeps a share of the rows (cuda/rank_shares.cpp), bit by bit: the kernel
// that adds and norms, and the way of all shares through the pipe. The sum that is asked for is
// made by the host, its norm by the kernel that norms alone.
#pragma once
#include <cstring>
#include <memory>
#include <tuple>

#include "cuda/ranks/collectives.h"
#include "cuda/ranks/sum_norm.h"
#include "cuda/ranks/sum_pipe.h"
#include "cuda/rows/norm.h"
#include "gpu_test.cuh"
#include "rank_set.cuh"

namespace gpu_test {

// The flags of a new pipe begin again.
inline void clear_pushed(const Rank& rank) {
  const size_t flags = 2 * static_cast<size_t>(rank.links.size - 1);
  CHECK_CUDA(
      cudaMemset(rank.box + inferd::cuda::pushed_at(rank.links.size), 0, flags * sizeof(uint32_t)));
}

// What comes of `rows` rows of `width` values with one part of each rank, on the current device.
template <typename T>
struct SumNormCase {
  static constexpr float kScale = 0.5f, kEps = 1e-5f;
  int64_t rows;
  int32_t width;
  std::vector<std::vector<T>> parts;
  std::vector<T> old, sum, normed;
  std::vector<float> weight;

  SumNormCase(int ranks, int64_t rows, int32_t width) : rows(rows), width(width) {
    const auto values = static_cast<size_t>(rows * width);
    for (int r = 0; r < ranks; ++r)
      parts.push_back(noisy<T>(values, 1, 5 + static_cast<uint32_t>(r)));
    old = noisy<T>(values, 2, 77);
    for (int32_t i = 0; i < width; ++i) weight.push_back(0.5f + static_cast<float>(i % 7) / 8);
    for (size_t i = 0; i < values; ++i) {
      float all = 0;
      for (const std::vector<T>& part : parts) all += gpu_test::to_float(part[i]);
      sum.push_back(rounded<T>(std::fma(kScale, all, gpu_test::to_float(old[i]))));
    }
    Device<T> x(sum), out(old);
    Device<float> scales(weight);
    CHECK_CUDA(inferd::cuda::rms_norm(half_of<T>, out.get(), x.get(), nullptr, scales.get(), rows,
                                      width, kEps, inferd::cuda::Launch(nullptr)));
    normed = out.download();
  }
  // Its parts are still to be named.
  inferd::cuda::SumNormArgs args(T* out, T* residual, const float* scales, int64_t count) const {
    return {.out = out,
            .residual = residual,
            .parts = {},
            .ranks = static_cast<int32_t>(parts.size()),
            .scale = kScale,
            .weight = scales,
            .eps = kEps,
            .rows = count,
            .width = width};
  }
};

template <typename T>
void check_sum_norm(const char* name) {
  const auto same = [](const std::vector<T>& got, const std::vector<T>& want) {
    return std::memcmp(got.data(), want.data(), want.size() * sizeof(T)) == 0;
  };
  for (const auto& [ranks, rows, width] :
       {std::tuple{2, 1, 8}, std::tuple{2, 5, 264}, std::tuple{3, 3, 4096}, std::tuple{4, 2, 16384},
        std::tuple{8, 3, 8200}}) {
    const SumNormCase<T> c(ranks, rows, width);
    std::vector<std::unique_ptr<Device<T>>> parts;
    Device<T> residual(c.old), out(c.old);
    Device<float> scales(c.weight);
    inferd::cuda::SumNormArgs args = c.args(out.get(), residual.get(), scales.get(), rows);
    for (int r = 0; r < ranks; ++r) {
      parts.push_back(std::make_unique<Device<T>>(c.parts[static_cast<size_t>(r)]));
      args.parts[r] = parts.back()->get();
    }
    char text[120];
    std::snprintf(text, sizeof text, "sum of %d and norm of %d rows of %d %s", ranks, rows, width,
                  name);
    CHECK_CUDA(inferd::cuda::sum_rms_norm(half_of<T>, args, inferd::cuda::Launch(nullptr)));
    CHECK_CUDA(cudaDeviceSynchronize());
    expect(same(residual.download(), c.sum) && same(out.download(), c.normed), text);
    residual.upload(c.old);
    args.out = nullptr;
    CHECK_CUDA(inferd::cuda::sum_rms_norm(half_of<T>, args, inferd::cuda::Launch(nullptr)));
    CHECK_CUDA(cudaDeviceSynchronize());
    expect(same(residual.download(), c.sum), std::string(text) + ", without the norm");
  }
  Device<T> any(std::vector<T>(16));
  const inferd::cuda::SumNormArgs odd{.out = any.get(),
                                      .residual = any.get(),
                                      .parts = {any.get(), any.get()},
                                      .ranks = 2,
                                      .scale = 1,
                                      .weight = nullptr,
                                      .eps = 0,
                                      .rows = 1,
                                      .width = 12};
  expect(inferd::cuda::sum_rms_norm(half_of<T>, odd, inferd::cuda::Launch(nullptr)) ==
             cudaErrorInvalidValue,
         "a width that is no multiple of 8 is refused");
}

// Rank r keeps rows [begin(r), begin(r + 1)), of which each has another number. Several times
// through one pipe, late by turns.
template <typename T>
void check_shares(Ranks& ranks, const char* name) {
  using inferd::cuda::SumPipe;
  const int size = ranks.size();
  constexpr int32_t kWidth = 1024, kTimes = 5;
  const auto begin = [](int r) { return int64_t{96} * r + int64_t{r} * r; };
  const int64_t all = begin(size);
  CHECK_CUDA(cudaSetDevice(ranks.of[0].device));
  const SumNormCase<T> c(size, all, kWidth);
  const auto bytes = [](int64_t rows) { return rows * kWidth * static_cast<int64_t>(sizeof(T)); };
  struct Rows {
    explicit Rows(const SumNormCase<T>& c, int r)
        : part(c.parts[r]), residual(c.old), out(c.old), scales(c.weight) {}
    Device<T> part, residual, out;
    Device<float> scales;
  };
  std::vector<std::unique_ptr<SumPipe>> pipes;
  std::vector<std::unique_ptr<Rows>> rows;
  for (int r = 0; r < size; ++r) {
    CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
    pipes.push_back(std::make_unique<SumPipe>(size));
    rows.push_back(std::make_unique<Rows>(c, r));
    clear_pushed(ranks.of[r]);
  }
  for (int time = 0; time < kTimes; ++time) {
    // Here, as this waits for all that a GPU does, which another rank's kernel may be part of.
    for (int r = 0; r < size; ++r) {
      CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
      rows[r]->residual.upload(c.old);
      rows[r]->out.upload(c.old);
      CHECK_CUDA(cudaDeviceSynchronize());
    }
    ranks.each([&](int r) {
      const Rank& rank = ranks.of[r];
      SumPipe& pipe = *pipes[r];
      Rows& own = *rows[r];
      const int64_t first = begin(r), count = begin(r + 1) - first;
      if (time % size == r) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto at = [&](Device<T>& of, int64_t row) { return of.get() + row * kWidth; };
      inferd::cuda::SumNormArgs args =
          c.args(at(own.out, first), at(own.residual, first), own.scales.get(), count);
      for (int to = 0; to < size; ++to)
        if (to != r)
          pipe.push(rank.links, to, at(own.part, begin(to)), bytes(begin(to + 1) - begin(to)),
                    rank.stream);
      args.parts[r] = at(own.part, first);
      for (int from = 0; from < size; ++from)
        if (from != r) args.parts[from] = pipe.await(rank.links, from, rank.stream);
      CHECK_CUDA(inferd::cuda::sum_rms_norm(half_of<T>, args, inferd::cuda::Launch(rank.stream)));
      for (int to = 0; to < size; ++to)
        if (to != r) pipe.push(rank.links, to, at(own.out, first), bytes(count), rank.stream);
      for (int from = 0; from < size; ++from) {
        if (from == r) continue;
        const void* come = pipe.await(rank.links, from, rank.stream);
        CHECK_CUDA(cudaMemcpyAsync(at(own.out, begin(from)), come,
                                   static_cast<size_t>(bytes(begin(from + 1) - begin(from))),
                                   cudaMemcpyDeviceToDevice, rank.stream));
      }
    });
    ranks.sync();
    for (int r = 0; r < size; ++r) {
      char text[120];
      std::snprintf(text, sizeof text, "shares of %s, rank %d of %d, time %d", name, r, size, time);
      const auto from = static_cast<size_t>(begin(r) * kWidth);
      const auto values = static_cast<size_t>(begin(r + 1) * kWidth) - from;
      CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
      const std::vector<T> sums = rows[r]->residual.download(), normed = rows[r]->out.download();
      expect(std::memcmp(sums.data() + from, c.sum.data() + from, values * sizeof(T)) == 0 &&
                 std::memcmp(normed.data(), c.normed.data(), c.normed.size() * sizeof(T)) == 0,
             text);
    }
  }
}

}  // namespace gpu_test
