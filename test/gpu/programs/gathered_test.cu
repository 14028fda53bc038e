// Sums and rows of gathered parts against the host, bit by bit, and what they tell the host of the
// progress of a stream. Needs one GPU and no NCCL.
//
//   gathered_test check | quick
#include <cstring>

#include "cuda/ranks/nccl/gathered.h"
#include "gpu_test.cuh"

namespace {

using namespace gpu_test;
using namespace inferd::cuda;

struct Stream {
  Device<uint32_t> passed{1};
  uint32_t* seen = nullptr;
  Progress progress{};
  int32_t sm_count = 0;

  Stream() {
    passed.fill(0);
    CHECK_CUDA(cudaMallocHost(&seen, sizeof(uint32_t)));
    *seen = 0;
    progress = {passed.get(), seen};
    CHECK_CUDA(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, 0));
  }
  ~Stream() { cudaFreeHost(seen); }

  // A collective of which `end` is the second half.
  template <typename End>
  void run(const End& end, const std::string& name) {
    const uint32_t before = *seen;
    CHECK_CUDA(note_begin(progress, Launch(nullptr)));
    CHECK_CUDA(cudaDeviceSynchronize());
    expect(before % 2 == 0 && *seen == before + 1, name + ": it is seen to begin");
    CHECK_CUDA(end());
    CHECK_CUDA(cudaDeviceSynchronize());
    expect(*seen == before + 2, name + ": it is seen to end");
  }
};

template <typename T>
void check_sum(Stream& stream, SumType type, int32_t parts, int64_t count, bool residual) {
  const auto values = static_cast<size_t>(count);
  const std::vector<T> x = noisy<T>(values * static_cast<size_t>(parts), 1, 5);
  const std::vector<T> old = noisy<T>(values, 2, 77);
  const float scale = 0.5f;
  std::vector<T> want(values);
  for (size_t i = 0; i < values; ++i) {
    float sum = 0;
    for (size_t part = 0; part < static_cast<size_t>(parts); ++part)
      sum += gpu_test::to_float(x[part * values + i]);
    want[i] = rounded<T>(residual ? std::fma(scale, sum, gpu_test::to_float(old[i])) : sum);
  }
  const Device<T> gathered(x), inout(old);
  const SumArgs args{.type = type,
                     .inout = inout.get(),
                     .x = gathered.get(),
                     .count = count,
                     .scale = scale,
                     .residual = residual};
  const std::string name = std::to_string(count) + " values of " + std::to_string(parts) +
                           " parts, type " + std::to_string(static_cast<int>(type));
  stream.run(
      [&] { return sum_gathered(stream.progress, args, parts, stream.sm_count, Launch(nullptr)); },
      name);
  const std::vector<T> got = inout.download();
  expect(std::memcmp(got.data(), want.data(), values * sizeof(T)) == 0, name);
}

void check_rows(Stream& stream, int32_t parts, int64_t rows, int64_t words) {
  const auto width = static_cast<size_t>(words), height = static_cast<size_t>(rows);
  std::vector<uint64_t> x(width * height * static_cast<size_t>(parts));
  for (size_t i = 0; i < x.size(); ++i) x[i] = i * 2654435761u + 1;
  const Device<uint64_t> gathered(x), out(x.size());
  const std::string name = std::to_string(rows) + " rows of " + std::to_string(words) + " words";
  stream.run(
      [&] {
        return place_gathered(stream.progress,
                              {.out = out.get(),
                               .gathered = gathered.get(),
                               .parts = parts,
                               .rows = rows,
                               .row_bytes = words * 8},
                              stream.sm_count, Launch(nullptr));
      },
      name);
  const std::vector<uint64_t> got = out.download();
  bool same = true;
  for (size_t part = 0; part < static_cast<size_t>(parts); ++part) {
    for (size_t i = 0; i < width * height; ++i) {
      const size_t row = i / width, to = (row * static_cast<size_t>(parts) + part) * width;
      same = same && got[to + i % width] == x[part * width * height + i];
    }
  }
  expect(same, name);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "quick") == 0;
  Stream stream;
  for (const int32_t parts : {1, 2, 8}) {
    for (const int64_t count : {int64_t{8}, int64_t{4100}, int64_t{quick ? 70'004 : 1'500'004}}) {
      for (const bool residual : {false, true}) {
        check_sum<__nv_bfloat16>(stream, SumType::kBF16, parts, count, residual);
        check_sum<__half>(stream, SumType::kF16, parts, count, residual);
        check_sum<float>(stream, SumType::kF32, parts, count, residual);
      }
    }
    check_rows(stream, parts, 1, 1);
    check_rows(stream, parts, 7, 33);
    check_rows(stream, parts, quick ? 16 : 256, 1000);
  }
  std::printf("gathered checks: %d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
