// Sums over ranks: checks against the sum that the host makes, a stress of many operations of
// random sizes with random delays, and timings inside graphs beside NCCL, where it is found. Sums
// of two ranks are here, those of which each rank keeps a share in shares_checks.cuh, those of more
// ranks in two_shot_checks.cuh.
//
//   all_reduce_test check            every type and way of sending, bit by bit
//   all_reduce_test alone            the same for tools that run one kernel at a time: of one rank
//   of
//                                    two, for which the host writes what the other sends, and of
//                                    more ranks in one kernel
//   all_reduce_test stress COUNT [RANKS]   COUNT operations in replayed graphs, each checked bit by
//                                    bit, of so many ranks
//   all_reduce_test bench            microseconds an operation, of bf16
//
// Where ranks are: rank_set.cuh.
#include <array>
#include <cstring>
#include <memory>

#include "all_reduce_stress.cuh"
#include "cuda/device/common.cuh"
#include "cuda/ranks/collectives.h"
#include "cuda/ranks/sum_pipe.h"
#include "gpu_test.cuh"
#include "nccl_sums.cuh"
#include "rank_set.cuh"
#include "shares_checks.cuh"
#include "two_shot_checks.cuh"

namespace {

using namespace gpu_test;
using namespace inferd::cuda;

constexpr int kRanks = 2;
enum class Way { kInPlace, kResidual, kPushed };

template <typename T>
void check_sum(Ranks& ranks, SumType type, int64_t count, Way way, const char* name) {
  const bool residual = way != Way::kInPlace;
  const float scale = residual ? 0.5f : 1;
  std::vector<std::vector<T>> x;
  std::vector<T> old = noisy<T>(static_cast<size_t>(count), 2, 77);
  std::vector<T> want(static_cast<size_t>(count));
  for (int r = 0; r < kRanks; ++r)
    x.push_back(noisy<T>(static_cast<size_t>(count), 1, 5 + static_cast<uint32_t>(r)));
  for (size_t i = 0; i < want.size(); ++i) {
    float sum = 0;
    for (int r = 0; r < kRanks; ++r) sum += gpu_test::to_float(x[r][i]);
    const float added = std::fma(scale, sum, gpu_test::to_float(old[i]));
    want[i] = rounded<T>(residual ? added : sum);
  }
  std::vector<std::unique_ptr<Device<T>>> parts, sums;
  std::vector<std::unique_ptr<SumPipe>> pipes;
  for (int r = 0; r < kRanks; ++r) {
    CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
    parts.push_back(std::make_unique<Device<T>>(x[r]));
    sums.push_back(std::make_unique<Device<T>>(old));
    pipes.push_back(std::make_unique<SumPipe>(kRanks));
    clear_pushed(ranks.of[r]);
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  constexpr int kTimes = 5;
  for (int time = 0; time < kTimes; ++time) {
    for (int r = 0; r < kRanks; ++r) {
      CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
      parts[r]->upload(x[r]);
      sums[r]->upload(old);
      CHECK_CUDA(cudaDeviceSynchronize());
    }
    ranks.each([&](int r) {
      const Rank& rank = ranks.of[r];
      const SumArgs args{.type = type,
                         .inout = residual ? sums[r]->get() : parts[r]->get(),
                         .x = parts[r]->get(),
                         .count = count,
                         .scale = scale,
                         .residual = residual};
      if (way == Way::kPushed) {
        pipes[r]->push(rank.links, 1 - r, args.x, count * static_cast<int64_t>(sizeof(T)),
                       rank.stream);
        pipes[r]->add(rank.links, args, ranks.blocks(), rank.stream);
      } else {
        CHECK_CUDA(all_reduce(rank.links, args, ranks.blocks(), Launch(rank.stream)));
      }
    });
    ranks.sync();
    for (int r = 0; r < kRanks; ++r) {
      CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
      const std::vector<T> got = (residual ? sums : parts)[r]->download();
      const bool same = std::memcmp(got.data(), want.data(), got.size() * sizeof(T)) == 0;
      char text[120];
      std::snprintf(text, sizeof text, "%s of %lld values, rank %d, time %d", name,
                    static_cast<long long>(count), r, time);
      expect(same, text);
    }
  }
}

template <typename T>
void check_type(Ranks& ranks, SumType type, const char* name) {
  constexpr int64_t kTwoPieces = kBulkBytes / sizeof(T) + 100'008;
  for (const int64_t count : {int64_t{8}, int64_t{4096}, int64_t{100'008}, int64_t{131'072},
                              int64_t{1'500'000}, kTwoPieces}) {
    check_sum<T>(ranks, type, count, Way::kInPlace, name);
    check_sum<T>(ranks, type, count, Way::kResidual, name);
    if (count * static_cast<int64_t>(sizeof(T)) <= push_bytes(kRanks))
      check_sum<T>(ranks, type, count, Way::kPushed, name);
  }
}

// One rank alone. What the other would send is in its mailbox before its kernels begin.

void write_box(const Rank& rank, int64_t at, const void* bytes, size_t count) {
  CHECK_CUDA(cudaMemcpy(rank.box + at, bytes, count, cudaMemcpyDefault));
}

// As rank 1 writes up to kPacketData bytes to rank 0 in the op of `flag`; the layout of links.h.
void write_packets(const Rank& rank, const std::byte* x, int64_t bytes, uint32_t flag) {
  std::vector<std::array<uint32_t, 4>> packets(static_cast<size_t>(bytes / 8));
  for (size_t i = 0; i < packets.size(); ++i) {
    std::array<uint32_t, 2> data;
    std::memcpy(data.data(), x + i * 8, 8);
    packets[i] = {data[0], flag, data[1], flag};
  }
  write_box(rank, (flag % 2 * kRanks + 1) * kPacketBytes, packets.data(), packets.size() * 16);
}

// As it writes up to kBulkBytes.
void write_bulk(const Rank& rank, const std::byte* x, int64_t bytes, uint32_t flag) {
  const int64_t sender = flag % 2 * kRanks + 1, bulk = 2 * kRanks * kPacketBytes;
  write_box(rank, bulk + sender * kBulkBytes, x, static_cast<size_t>(bytes));
  const std::vector<uint32_t> flags(static_cast<size_t>((bytes + kTileBytes - 1) / kTileBytes),
                                    flag);
  write_box(rank, bulk + 2 * kRanks * kBulkBytes + sender * kBulkTiles * 4, flags.data(),
            flags.size() * 4);
}

// At most two ops: a third would write where the first one has not read yet.
void write_sum(const Rank& rank, const std::byte* x, int64_t bytes) {
  uint32_t op;
  CHECK_CUDA(cudaMemcpy(&op, &rank.links.count->op, sizeof op, cudaMemcpyDefault));
  const bool packed = bytes <= kPacketData || bytes % 16 != 0;
  const int64_t most = packed ? kPacketData : kBulkBytes;
  for (int64_t at = 0; at < bytes; at += most) {
    const int64_t piece = std::min(most, bytes - at);
    packed ? write_packets(rank, x + at, piece, ++op) : write_bulk(rank, x + at, piece, ++op);
  }
}

template <typename T>
void check_alone(Ranks& ranks, SumType type, int64_t count, Way way, const char* name) {
  const Rank& rank = ranks.of[0];
  const auto values = static_cast<size_t>(count);
  const auto bytes = count * static_cast<int64_t>(sizeof(T));
  const bool residual = way != Way::kInPlace;
  const std::vector<T> mine = noisy<T>(values, 1, 5), theirs = noisy<T>(values, 1, 6);
  const std::vector<T> old = noisy<T>(values, 2, 77);
  std::vector<T> want(values);
  for (size_t i = 0; i < values; ++i) {
    const float sum = gpu_test::to_float(mine[i]) + gpu_test::to_float(theirs[i]);
    want[i] = rounded<T>(residual ? std::fma(0.5f, sum, gpu_test::to_float(old[i])) : sum);
  }
  CHECK_CUDA(cudaSetDevice(rank.device));
  Device<T> part(mine), sum(old);
  const SumArgs args{.type = type,
                     .inout = residual ? sum.get() : part.get(),
                     .x = part.get(),
                     .count = count,
                     .scale = residual ? 0.5f : 1,
                     .residual = residual};
  const auto* sent = reinterpret_cast<const std::byte*>(theirs.data());
  if (way == Way::kPushed) {
    constexpr uint32_t kFlag = 1;
    CHECK_CUDA(
        cudaMemcpy(pushed_rows(rank.links, 0, 1, 1), sent, values * sizeof(T), cudaMemcpyDefault));
    CHECK_CUDA(
        cudaMemcpy(pushed_flag(rank.links, 0, 1, 1), &kFlag, sizeof kFlag, cudaMemcpyDefault));
    CHECK_CUDA(add_pushed(rank.links, args, 1, kFlag, ranks.blocks(), Launch(rank.stream)));
  } else {
    write_sum(rank, sent, bytes);
    CHECK_CUDA(all_reduce(rank.links, args, ranks.blocks(), Launch(rank.stream)));
  }
  ranks.sync();
  const std::vector<T> got = (residual ? sum : part).download();
  char text[120];
  std::snprintf(text, sizeof text, "%s of %lld values, alone, way %d", name,
                static_cast<long long>(count), static_cast<int>(way));
  expect(std::memcmp(got.data(), want.data(), values * sizeof(T)) == 0, text);
}

template <typename T>
void check_type_alone(Ranks& ranks, SumType type, const char* name) {
  constexpr int64_t kTwoPieces = kBulkBytes / sizeof(T) + 100'008;
  for (const int64_t count :
       {int64_t{8}, int64_t{4096}, int64_t{100'008}, int64_t{131'072}, kTwoPieces}) {
    for (const Way way : {Way::kInPlace, Way::kResidual}) {
      for (int time = 0; time < 2; ++time) check_alone<T>(ranks, type, count, way, name);
    }
    if (count < kTwoPieces) check_alone<T>(ranks, type, count, Way::kPushed, name);
  }
}

void bench(Ranks& ranks) {
  int32_t multiprocessors = 0;
  CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const int32_t blocks =
      ranks.of[0].device == ranks.of[1].device ? multiprocessors / 2 : multiprocessors;
  constexpr int64_t kMost = 64 << 20;
  std::array<__nv_bfloat16*, kRanks> x{}, sums{};
  std::array<std::unique_ptr<SumPipe>, kRanks> pipes;
  ranks.each([&](int r) {
    CHECK_CUDA(cudaMalloc(&x[r], kMost));
    CHECK_CUDA(cudaMalloc(&sums[r], kMost));
    CHECK_CUDA(cudaMemset(x[r], 0, kMost));
    CHECK_CUDA(cudaMemset(sums[r], 0, kMost));
    clear_pushed(ranks.of[r]);
    CHECK_CUDA(cudaDeviceSynchronize());
    pipes[r] = std::make_unique<SumPipe>(kRanks);
  });
  const NcclSums nccl(
      ranks, [&](int r) { return x[r]; }, kMost);
  std::printf("%10s %14s %14s %14s   us; GB/s each way\n", "bytes", "own + residual", "pushed",
              nccl.found() ? "NCCL" : "no NCCL");
  for (const int64_t bytes : {int64_t{8} << 10, int64_t{64} << 10, int64_t{256} << 10,
                              int64_t{1} << 20, int64_t{4} << 20, int64_t{16} << 20, kMost}) {
    const auto args = [&](int r) {
      return SumArgs{.type = SumType::kBF16,
                     .inout = sums[r],
                     .x = x[r],
                     .count = bytes / 2,
                     .scale = 1,
                     .residual = true};
    };
    const auto print = [&](double us) {
      std::printf(" %8.1f %5.0f", us, static_cast<double>(bytes) / us / 1e3);
    };
    std::printf("%10lld", static_cast<long long>(bytes));
    print(time_of(ranks, bytes, [&](int r, cudaStream_t stream) {
      CHECK_CUDA(all_reduce(ranks.of[r].links, args(r), blocks, Launch(stream, true)));
    }));
    // Not in a graph: the host counts pieces.
    std::array<float, kRanks> ms{};
    constexpr int kPushes = 20;
    ranks.each([&](int r) {
      cudaEvent_t begin, end;
      CHECK_CUDA(cudaEventCreate(&begin));
      CHECK_CUDA(cudaEventCreate(&end));
      for (int i = -2; i < kPushes; ++i) {
        if (i == 0) CHECK_CUDA(cudaEventRecord(begin, ranks.of[r].stream));
        pipes[r]->push(ranks.of[r].links, 1 - r, x[r], bytes, ranks.of[r].stream);
        pipes[r]->add(ranks.of[r].links, args(r), blocks, ranks.of[r].stream);
      }
      CHECK_CUDA(cudaEventRecord(end, ranks.of[r].stream));
      CHECK_CUDA(cudaEventSynchronize(end));
      CHECK_CUDA(cudaEventElapsedTime(&ms[r], begin, end));
    });
    ranks.sync();
    print(static_cast<double>(std::max(ms[0], ms[1])) * 1000 / kPushes);
    if (nccl.found()) {
      print(time_of(ranks, bytes,
                    [&](int r, cudaStream_t stream) { nccl.add_up(r, x[r], bytes / 2, stream); }));
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  // A kernel that is loaded at its first use waits for a device, which may wait for the other rank;
  // here the ranks have threads of their own, and NCCL takes long to load all of its kernels.
  if (what != "bench") setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  // Each stream of eight ranks on one GPU has a queue of its own there: in a queue that two share,
  // what waits for the one holds up the other, which it may be waiting for.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (what == "stress" && argc > 3) {
    const int size = std::clamp(std::atoi(argv[3]), 2, kMostRanks);
    Ranks ranks(size);
    stress(ranks, std::atoll(argv[2]));
    return failures == 0 ? 0 : 1;
  }
  Ranks ranks(kRanks);
  if (what == "check" || what == "all") {
    check_type<__nv_bfloat16>(ranks, SumType::kBF16, "bf16");
    check_type<__half>(ranks, SumType::kF16, "f16");
    check_type<float>(ranks, SumType::kF32, "f32");
    check_sum_norm<__nv_bfloat16>("bf16");
    check_sum_norm<__half>("f16");
    check_shares<__nv_bfloat16>(ranks, "bf16");
    check_shares<__half>(ranks, "f16");
    stress(ranks, 100'000);
    for (const int size : {3, 4, 8}) {
      check_two_shot_at_once(size);
      Ranks more(size);
      check_two_shot(more);
      check_timing(more);
      check_shares<__nv_bfloat16>(more, "bf16");
      check_shares<__half>(more, "f16");
      stress(more, 20'000);
    }
    std::printf("all-reduce checks: %d failures\n", failures);
  }
  if (what == "alone") {
    check_type_alone<__nv_bfloat16>(ranks, SumType::kBF16, "bf16");
    check_type_alone<__half>(ranks, SumType::kF16, "f16");
    check_type_alone<float>(ranks, SumType::kF32, "f32");
    check_sum_norm<__nv_bfloat16>("bf16");
    check_sum_norm<__half>("f16");
    for (const int size : {3, 4, 8}) check_two_shot_at_once(size);
    std::printf("all-reduce checks one kernel at a time: %d failures\n", failures);
  }
  if (what == "stress") stress(ranks, argc > 2 ? std::atoll(argv[2]) : 1'000'000);
  if (what == "bench" || what == "all") {
    bench(ranks);
    bench_two_shot();
  }
  return failures == 0 ? 0 : 1;
}
