// Sums over two ranks: checks against the sum that the host makes, a stress of many operations of
// random sizes with random delays, and timings inside graphs beside NCCL, where it is found. Longer
// than other files: all of them run on the same two ranks.
//
//   all_reduce_test check            every type and way of sending, bit by bit
//   all_reduce_test alone            the same of one rank, for which the host writes what the other
//                                    sends: for tools that run one kernel at a time
//   all_reduce_test stress COUNT     COUNT operations in replayed graphs, each checked bit by bit
//   all_reduce_test bench            microseconds an operation, of bf16
//
// Ranks are GPUs 0 and 1; on a machine with one GPU both are on it, which is slower and tests the
// same.
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <memory>
#include <thread>

#include "cuda/device/common.cuh"
#include "cuda/ranks/collectives.h"
#include "cuda/ranks/sum_pipe.h"
#include "gpu_test.cuh"

namespace {

using namespace gpu_test;
using namespace inferd::cuda;

constexpr int kRanks = 2;
constexpr uint64_t kLimitNs = 10'000'000'000;
// Blocks of two ranks fit on one GPU.
constexpr int32_t kBlocks = 96;

struct Rank {
  int device = 0;
  cudaStream_t stream = nullptr;
  std::byte* box = nullptr;
  uint32_t* end = nullptr;
  RankLinks links{};
};

struct Ranks {
  std::array<Rank, kRanks> of;

  Ranks() {
    int devices = 0;
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    for (int r = 0; r < kRanks; ++r) {
      Rank& rank = of[r];
      rank.device = r % devices;
      CHECK_CUDA(cudaSetDevice(rank.device));
      for (int other = 0; other < std::min(kRanks, devices); ++other) {
        if (other != rank.device) CHECK_CUDA(cudaDeviceEnablePeerAccess(other, 0));
      }
      CHECK_CUDA(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
      const auto bytes = static_cast<size_t>(mailbox_bytes(kRanks));
      CHECK_CUDA(cudaMalloc(&rank.box, bytes));
      CHECK_CUDA(cudaMemset(rank.box, 0, bytes));
      CHECK_CUDA(cudaMalloc(&rank.links.count, sizeof(OpCount)));
      CHECK_CUDA(cudaMemset(rank.links.count, 0, sizeof(OpCount)));
      CHECK_CUDA(cudaMallocHost(&rank.end, sizeof(uint32_t)));
      *rank.end = 0;
      CHECK_CUDA(cudaDeviceSynchronize());
    }
    for (int r = 0; r < kRanks; ++r) {
      RankLinks& links = of[r].links;
      links.rank = r;
      links.size = kRanks;
      for (int other = 0; other < kRanks; ++other) links.boxes[other] = of[other].box;
      links.end = of[r].end;
      links.limit_ns = kLimitNs;
    }
  }

  // On a thread for each rank, whose device is current.
  void each(const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        CHECK_CUDA(cudaSetDevice(of[r].device));
        work(r);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void sync() {
    for (Rank& rank : of) {
      CHECK_CUDA(cudaSetDevice(rank.device));
      CHECK_CUDA(cudaStreamSynchronize(rank.stream));
      expect(*rank.end == 0, "a rank waited for too long");
      if (*rank.end != 0) std::exit(1);
    }
  }
};

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
    pipes.push_back(std::make_unique<SumPipe>());
    // The flags of a new pipe begin again.
    CHECK_CUDA(cudaMemset(pushed_flag(ranks.of[r].links, r, 0), 0, 2 * sizeof(uint32_t)));
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
        pipes[r]->push(rank.links, args.x, count * static_cast<int64_t>(sizeof(T)), rank.stream);
        pipes[r]->add(rank.links, args, kBlocks, rank.stream);
      } else {
        CHECK_CUDA(all_reduce(rank.links, args, kBlocks, Launch(rank.stream)));
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
    if (count * static_cast<int64_t>(sizeof(T)) <= kPushBytes)
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
    CHECK_CUDA(cudaMemcpy(pushed_rows(rank.links, 0, 1), sent, values * sizeof(T),
                          cudaMemcpyDefault));
    CHECK_CUDA(cudaMemcpy(pushed_flag(rank.links, 0, 1), &kFlag, sizeof kFlag, cudaMemcpyDefault));
    CHECK_CUDA(add_pushed(rank.links, args, 1, kFlag, kBlocks, Launch(rank.stream)));
  } else {
    write_sum(rank, sent, bytes);
    CHECK_CUDA(all_reduce(rank.links, args, kBlocks, Launch(rank.stream)));
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

__device__ uint32_t mixed(uint32_t a, uint32_t b) {
  uint32_t x = a * 2654435761u ^ b * 0x85ebca6bu;
  x ^= x >> 15;
  x *= 0xc2b2ae35u;
  return x ^ x >> 13;
}

// What rank `rank` brings to op `op`.
__device__ __nv_bfloat16 brought(uint32_t op, int rank, int64_t i) {
  return __float2bfloat16_rn(noise(static_cast<uint64_t>(i), mixed(op, 31 + rank)));
}

struct Tally {
  unsigned long long ops, wrong;
};

// Checks that `values` [checked] are the sums of the op before, and makes what the next one sums;
// `made` numbers them. One rank in eight comes late.
__global__ void check_and_make(__nv_bfloat16* values, int64_t checked, int64_t next, int rank,
                               uint32_t* made, Tally* tally) {
  __shared__ bool late;
  const uint32_t op = *made;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < checked; i += step) {
    float sum = 0;
    for (int r = 0; r < kRanks; ++r) sum += __bfloat162float(brought(op, r, i));
    const __nv_bfloat16 want = __float2bfloat16_rn(sum), got = values[i];
    if (__bfloat16_as_ushort(want) != __bfloat16_as_ushort(got)) atomicAdd(&tally->wrong, 1ull);
  }
  for (int64_t i = first; i < next; i += step) values[i] = brought(op + 1, rank, i);
  if (threadIdx.x == 0) late = mixed(op, 101 + rank) % 8 == 0;
  __syncthreads();
  if (late && blockIdx.x == 0) {
    for (uint32_t i = 0; i < mixed(op, 7 + rank) % 16; ++i) __nanosleep(500);
  }
}
__global__ void count_one(uint32_t* made, Tally* tally) {
  ++*made;
  ++tally->ops;
}

// `made` is counted by the last block of the op before it is read again: a launch of its own.
void stress(Ranks& ranks, int64_t wanted) {
  constexpr int kGraphs = 8, kOps = 250;
  constexpr int64_t kMost = 512 << 10;  // values
  struct Side {
    __nv_bfloat16* values;
    uint32_t* made;
    Tally* tally;
    std::array<cudaGraphExec_t, kGraphs> graphs;
  };
  std::array<Side, kRanks> sides{};
  uint32_t random = 12345;
  std::vector<std::vector<int64_t>> sizes(kGraphs);
  for (std::vector<int64_t>& list : sizes) {
    for (int i = 0; i < kOps; ++i) {
      random = random * 1664525u + 1013904223u;
      const int bits = 2 + static_cast<int>((random >> 8) % (random >> 28 == 0 ? 18 : 14));
      const int64_t most = int64_t{1} << bits;
      list.push_back(std::min(kMost, (most + (random >> 4) % most) / 8 * 8 + 8));
    }
  }
  ranks.each([&](int r) {
    Side& side = sides[r];
    const Rank& rank = ranks.of[r];
    CHECK_CUDA(cudaMalloc(&side.values, kMost * sizeof(__nv_bfloat16)));
    CHECK_CUDA(cudaMalloc(&side.made, sizeof(uint32_t)));
    CHECK_CUDA(cudaMalloc(&side.tally, sizeof(Tally)));
    CHECK_CUDA(cudaMemset(side.made, 0, sizeof(uint32_t)));
    CHECK_CUDA(cudaMemset(side.tally, 0, sizeof(Tally)));
    for (int g = 0; g < kGraphs; ++g) {
      cudaGraph_t graph;
      CHECK_CUDA(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
      int64_t before = 0;
      for (int i = 0; i <= kOps; ++i) {
        const int64_t next = i < kOps ? sizes[g][i] : 0;
        const auto blocks =
            static_cast<unsigned>(std::clamp<int64_t>(std::max(before, next) / 1024, 1, 64));
        check_and_make<<<blocks, 256, 0, rank.stream>>>(side.values, before, next, r, side.made,
                                                        side.tally);
        if (i == kOps) break;
        count_one<<<1, 1, 0, rank.stream>>>(side.made, side.tally);
        const SumArgs args{.type = SumType::kBF16,
                           .inout = side.values,
                           .x = side.values,
                           .count = next,
                           .scale = 1,
                           .residual = false};
        CHECK_CUDA(all_reduce(rank.links, args, kBlocks, Launch(rank.stream)));
        before = next;
      }
      CHECK_CUDA(cudaStreamEndCapture(rank.stream, &graph));
      CHECK_CUDA(cudaGraphInstantiate(&side.graphs[g], graph, 0));
      CHECK_CUDA(cudaGraphUpload(side.graphs[g], rank.stream));
    }
    CHECK_CUDA(cudaStreamSynchronize(rank.stream));
  });
  ranks.each([&](int r) {
    for (int64_t done = 0, replay = 0; done < wanted; done += kOps, ++replay) {
      CHECK_CUDA(cudaGraphLaunch(sides[r].graphs[static_cast<size_t>(replay % kGraphs)],
                                 ranks.of[r].stream));
      if (replay % 4 == 3) CHECK_CUDA(cudaStreamSynchronize(ranks.of[r].stream));
      if (*static_cast<volatile uint32_t*>(ranks.of[r].end) != 0) break;
    }
  });
  ranks.sync();
  for (int r = 0; r < kRanks; ++r) {
    Tally tally{};
    CHECK_CUDA(cudaSetDevice(ranks.of[r].device));
    CHECK_CUDA(cudaMemcpy(&tally, sides[r].tally, sizeof tally, cudaMemcpyDefault));
    std::printf("stress, rank %d: %llu operations, %llu wrong values\n", r, tally.ops, tally.wrong);
    expect(tally.ops >= static_cast<unsigned long long>(wanted), "stress did not run to its end");
    expect(tally.wrong == 0, "stress");
  }
}

// As much of NCCL as is timed here, loaded at run time.
struct Nccl {
  struct Id {
    char bytes[128];
  };
  using Comm = void*;
  static constexpr int kBF16 = 9, kSum = 0;
  int (*get_id)(Id*) = nullptr;
  int (*init)(Comm*, int, Id, int) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, Comm, cudaStream_t) = nullptr;

  Nccl() {
    const char* named = std::getenv("INFERD_NCCL_LIBRARY");
    void* library = dlopen(named == nullptr ? "libnccl.so.2" : named, RTLD_NOW);
    if (library == nullptr) return;
    get_id = reinterpret_cast<decltype(get_id)>(dlsym(library, "ncclGetUniqueId"));
    init = reinterpret_cast<decltype(init)>(dlsym(library, "ncclCommInitRank"));
    all_reduce = reinterpret_cast<decltype(all_reduce)>(dlsym(library, "ncclAllReduce"));
  }
  bool found() const { return get_id != nullptr && init != nullptr && all_reduce != nullptr; }
};

using Op = std::function<void(int rank, cudaStream_t)>;

// Microseconds of one of several in a graph, the longer one of the ranks.
double time_of(Ranks& ranks, int64_t bytes, const Op& op) {
  std::array<double, kRanks> us{};
  const int count = bytes <= 1 << 20 ? 200 : 20;
  ranks.each([&](int r) {
    us[r] = time_in_graph(ranks.of[r].stream, count, 9, [&](int) { op(r, ranks.of[r].stream); });
  });
  ranks.sync();
  return *std::max_element(us.begin(), us.end());
}

void bench(Ranks& ranks) {
  int32_t multiprocessors = 0;
  CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const int32_t blocks =
      ranks.of[0].device == ranks.of[1].device ? multiprocessors / 2 : multiprocessors;
  constexpr int64_t kMost = 64 << 20;
  std::array<__nv_bfloat16*, kRanks> x{}, sums{};
  std::array<Nccl::Comm, kRanks> comms{};
  std::array<std::unique_ptr<SumPipe>, kRanks> pipes;
  const Nccl nccl;
  Nccl::Id id{};
  const bool have =
      nccl.found() && ranks.of[0].device != ranks.of[1].device && nccl.get_id(&id) == 0;
  ranks.each([&](int r) {
    CHECK_CUDA(cudaMalloc(&x[r], kMost));
    CHECK_CUDA(cudaMalloc(&sums[r], kMost));
    CHECK_CUDA(cudaMemset(x[r], 0, kMost));
    CHECK_CUDA(cudaMemset(sums[r], 0, kMost));
    CHECK_CUDA(cudaMemset(pushed_flag(ranks.of[r].links, r, 0), 0, 2 * sizeof(uint32_t)));
    CHECK_CUDA(cudaDeviceSynchronize());
    pipes[r] = std::make_unique<SumPipe>();
    if (!have) return;
    expect(nccl.init(&comms[r], kRanks, id, r) == 0, "ncclCommInitRank");
    // Its first operation takes memory, which it must not while it is recorded.
    for (const size_t count : {size_t{4096}, static_cast<size_t>(kMost / 2)}) {
      nccl.all_reduce(x[r], x[r], count, Nccl::kBF16, Nccl::kSum, comms[r], ranks.of[r].stream);
      CHECK_CUDA(cudaStreamSynchronize(ranks.of[r].stream));
    }
  });
  std::printf("%10s %14s %14s %14s   us; GB/s each way\n", "bytes", "own + residual", "pushed",
              have ? "NCCL" : "no NCCL");
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
        pipes[r]->push(ranks.of[r].links, x[r], bytes, ranks.of[r].stream);
        pipes[r]->add(ranks.of[r].links, args(r), blocks, ranks.of[r].stream);
      }
      CHECK_CUDA(cudaEventRecord(end, ranks.of[r].stream));
      CHECK_CUDA(cudaEventSynchronize(end));
      CHECK_CUDA(cudaEventElapsedTime(&ms[r], begin, end));
    });
    ranks.sync();
    print(static_cast<double>(std::max(ms[0], ms[1])) * 1000 / kPushes);
    if (have) {
      print(time_of(ranks, bytes, [&](int r, cudaStream_t stream) {
        nccl.all_reduce(x[r], x[r], static_cast<size_t>(bytes / 2), Nccl::kBF16, Nccl::kSum,
                        comms[r], stream);
      }));
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
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Ranks ranks;
  if (what == "check" || what == "all") {
    check_type<__nv_bfloat16>(ranks, SumType::kBF16, "bf16");
    check_type<__half>(ranks, SumType::kF16, "f16");
    check_type<float>(ranks, SumType::kF32, "f32");
    stress(ranks, 100'000);
    std::printf("all-reduce checks: %d failures\n", failures);
  }
  if (what == "alone") {
    check_type_alone<__nv_bfloat16>(ranks, SumType::kBF16, "bf16");
    check_type_alone<__half>(ranks, SumType::kF16, "f16");
    check_type_alone<float>(ranks, SumType::kF32, "f32");
    std::printf("all-reduce checks of one rank: %d failures\n", failures);
  }
  if (what == "stress") stress(ranks, argc > 2 ? std::atoll(argv[2]) : 1'000'000);
  if (what == "bench" || what == "all") bench(ranks);
  return failures == 0 ? 0 : 1;
}
