// The group of ranks over NCCL without a GPU: nccl_group.cpp with stand-ins for CUDA and NCCL, and
// ranks driven by the thread of the test, as benchmarks drive them. What is checked is who waits
// for whom, what ends a group, and that it ends once. Run by nccl-group.test.ts; ends with the
// number of checks that failed.
//
// Nothing is computed: a call of NCCL only notes what it was asked for, and a rank stays in a
// collective when its progress is made odd by hand.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu/runtime/comm.h"
#include "cuda/ranks/nccl/nccl_group.h"

using namespace inferd;
using namespace inferd::cuda;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct ncclComm {
  int ranks, rank, made;
};

namespace {

int failed = 0;

void expect(bool good, const char* what) {
  if (good) return;
  std::printf("FAILED: %s\n", what);
  ++failed;
}

// What the stand-ins know. One scenario at a time.
struct World {
  std::mutex mutex;
  std::vector<std::string> calls;
  std::vector<Progress> progress;  // of each rank, in the order in which they began a collective
  std::vector<int32_t> summed;     // parts of each sum
  int device = -1;
  bool capturing = false;
  int made = 0;          // groups of communicators
  int fails_at = -1;     // the group whose communicators are not made
  int broken_rank = -1;  // has an error by itself
  bool graphs = false;   // hold communicators, whose end then takes as long
  int joining = 0;       // communicators of the group that is being made
  int comms = 0;         // that are made
  int told = 0;          // to end
  int aborted = 0;       // that have ended

  void note(const std::string& text) {
    const std::lock_guard lock(mutex);
    calls.push_back(text);
  }
  int count(const std::string& text) {
    const std::lock_guard lock(mutex);
    return static_cast<int>(std::count(calls.begin(), calls.end(), text));
  }
};
World* world = nullptr;

int end_group() {
  const std::lock_guard lock(world->mutex);
  if (world->made++ == world->fails_at) return 2;
  world->comms += world->joining;
  world->joining = 0;
  return 0;
}

// Kernels leave when their own communicator is told to end. The last call of a process stays until
// devices are idle, so until all are told, and graphs are gone.
int abort_comm(NcclComm comm) {
  std::unique_lock lock(world->mutex);
  world->calls.push_back(format("abort %d.%d", comm->rank, comm->made));
  ++world->told;
  const auto of_group = [&](const std::string& call) {
    return call.starts_with("abort") && call.ends_with(format(".%d", comm->made));
  };
  const auto told = std::count_if(world->calls.begin(), world->calls.end(), of_group);
  while (told == comm->ranks && (world->told < world->comms || world->graphs)) {
    lock.unlock();
    std::this_thread::sleep_for(milliseconds(1));
    lock.lock();
  }
  ++world->aborted;
  return 0;
}

NcclLibrary fake_nccl() {
  NcclLibrary library;
  library.version = "2.99.0";
  library.error_text = [](int result) { return result == 6 ? "a peer is gone" : "no network"; };
  library.get_id = [](NcclId*) { return 0; };
  library.group_start = [] { return 0; };
  library.group_end = end_group;
  library.join = [](NcclComm* comm, int ranks, NcclId, int rank) {
    world->note(format("join %d of %d on %d", rank, ranks, world->device));
    ++world->joining;
    *comm = new ncclComm{ranks, rank, world->made};
    return 0;
  };
  library.all_reduce = [](const void*, void*, size_t count, NcclType, int, NcclComm comm,
                          CUstream_st*) {
    return world->note(format("sum %zu for %d.%d", count, comm->rank, comm->made)), 0;
  };
  library.all_gather = [](const void*, void*, size_t count, NcclType, NcclComm comm, CUstream_st*) {
    return world->note(format("gather %zu for %d.%d", count, comm->rank, comm->made)), 0;
  };
  library.abort = abort_comm;
  library.async_error = [](NcclComm comm, int* error) {
    *error = comm->rank == world->broken_rank ? 6 : 0;
    return 0;
  };
  return library;
}

}  // namespace

cudaError_t cudaSetDevice(int device) { return world->device = device, cudaSuccess; }
cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  return std::memset(at, value, bytes), cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = world->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaFree(void* at) { return std::free(at), cudaSuccess; }
cudaError_t cudaFreeHost(void* at) { return std::free(at), cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

namespace inferd::cuda {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(ErrorCode::kDevice, what);
}
DeviceMemory allocate_device(size_t bytes) { return DeviceMemory(std::malloc(bytes)); }
PinnedMemory allocate_pinned(size_t bytes) { return PinnedMemory(std::malloc(bytes)); }

const NcclLibrary& nccl() {
  static const NcclLibrary library = fake_nccl();
  return library;
}

cudaError_t note_begin(const Progress& progress, const Launch&) {
  return world->progress.push_back(progress), cudaSuccess;
}
cudaError_t sum_gathered(const Progress&, const SumArgs&, int32_t parts, int32_t, const Launch&) {
  return world->summed.push_back(parts), cudaSuccess;
}
cudaError_t place_gathered(const Progress&, const Gathered& what, int32_t, const Launch&) {
  world->note(format("place %lld rows", static_cast<long long>(what.rows)));
  return cudaSuccess;
}

}  // namespace inferd::cuda

namespace {

constexpr milliseconds kLimit{1000};

struct Ranks {
  World here;
  RankGroup group{.id = cpu::new_group(), .rank = 0, .size = 2, .limit = kLimit};
  std::vector<std::unique_ptr<NcclMember>> of;

  explicit Ranks(int32_t size = 2) {
    group.size = size;
    world = &here;
  }
  void join(int32_t rank, int32_t device) {
    group.rank = rank;
    of.push_back(std::make_unique<NcclMember>(group, device, 100, cpu::join_group(group)));
  }
  void join_all() {
    for (int32_t r = 0; r < group.size; ++r) join(r, 4 + r);
  }
  void sum(size_t rank, int64_t count) {
    const SumArgs args{.type = SumType::kBF16,
                       .inout = nullptr,
                       .x = nullptr,
                       .count = count,
                       .scale = 1,
                       .residual = false};
    of[rank]->all_reduce(args, Launch(nullptr));
  }
};

// What `work` throws, or "".
std::string thrown(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Waits until the host side of a rank has ended: how long it took.
milliseconds until_end(NcclMember& member) {
  const auto begin = Clock::now();
  while (!member.host().ended() && Clock::now() - begin < milliseconds(5000))
    std::this_thread::sleep_for(milliseconds(1));
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

std::string reason(NcclMember& member) {
  return thrown([&] { member.host().check_end(); });
}

// All communicators of two ranks, for recorded work and the rest, end once.
void expect_one_end(Ranks& ranks, const char* what) {
  const auto until = Clock::now() + milliseconds(5000);
  int aborted = 0;
  while (aborted < 4 && Clock::now() < until) {
    const std::lock_guard lock(ranks.here.mutex);
    aborted = ranks.here.aborted;
  }
  std::this_thread::sleep_for(milliseconds(50));
  bool once = aborted == 4;
  for (const char* comm : {"abort 0.0", "abort 1.0", "abort 0.1", "abort 1.1"})
    once = once && ranks.here.count(comm) == 1;
  expect(once, what);
}

void check_joining() {
  Ranks ranks;
  ranks.join(0, 4);
  expect(ranks.here.calls.empty(), "the first rank waits for nobody and makes nothing");
  ranks.join(1, 7);
  for (const char* made : {"join 0 of 2 on 4", "join 1 of 2 on 7"})
    expect(ranks.here.count(made) == 2, "the last one makes two communicators of each rank");
  expect(ranks.here.device == 7, "the last one has its device again");
}

void check_calls() {
  Ranks ranks;
  ranks.join_all();
  ranks.sum(0, 100);
  expect(ranks.here.count("gather 200 for 0.0") == 1, "a sum of two ranks gathers bytes");
  expect(ranks.here.summed == std::vector<int32_t>{2}, "and adds both parts");
  ranks.here.capturing = true;
  ranks.sum(1, 100);
  expect(ranks.here.count("gather 200 for 1.1") == 1, "recorded work has another communicator");
  ranks.here.capturing = false;
  ranks.sum(1, (20 << 20) + 4);
  expect(ranks.here.count("gather 33554432 for 1.0") == 1 &&
             ranks.here.count("gather 8388616 for 1.0") == 1,
         "large sums go in pieces");
  ranks.of[0]->all_gather(nullptr, nullptr, 5, 16 << 20, Launch(nullptr));
  expect(ranks.here.count("place 2 rows") == 2 && ranks.here.count("place 1 rows") == 1,
         "wide rows are gathered some at a time");
  const std::string wide =
      thrown([&] { ranks.of[0]->all_gather(nullptr, nullptr, 1, 64 << 20, Launch(nullptr)); });
  expect(contains(wide, "narrower rows"), "rows that do not fit are refused");
}

void check_many() {
  Ranks ranks(4);
  ranks.join_all();
  ranks.sum(0, 1000);
  expect(ranks.here.count("gather 2000 for 0.0") == 1, "small sums of four ranks gather");
  ranks.sum(0, 1 << 20);
  expect(ranks.here.count("sum 1048576 for 0.0") == 1, "NCCL makes the large ones");
  expect(ranks.here.summed == std::vector<int32_t>({4, 1}), "which are then one part");
}

void check_stuck() {
  Ranks ranks;
  ranks.join_all();
  ranks.sum(0, 8);
  ranks.sum(1, 8);
  volatile uint32_t* seen = ranks.here.progress[1].seen;
  // It goes from one collective to the next, for longer than the limit, and rests outside of one.
  for (int i = 0; i < 14; ++i) {
    *seen = *seen + 1;
    std::this_thread::sleep_for(kLimit / 10);
  }
  std::this_thread::sleep_for(kLimit * 2);
  expect(!ranks.of[0]->host().ended(), "a rank that goes on, or rests outside, ends nothing");
  *seen = 101;
  const milliseconds took = until_end(*ranks.of[0]);
  expect(took >= kLimit && took < kLimit + milliseconds(4000), "a rank that stays ends the group");
  for (const auto& member : ranks.of)
    expect(contains(reason(*member), "rank 1 waited 1000 ms for the others"), "with one reason");
  expect_one_end(ranks, "a rank that stays: all communicators end once");
  expect(contains(thrown([&] { ranks.of[1]->check_end(true); }), "waited 1000 ms"),
         "a step that ended beside is no result");
  expect(thrown([&] { ranks.of[1]->check_end(false); }).empty(), "one in flight is waited for");
  expect(contains(thrown([&] { ranks.sum(0, 8); }), "waited 1000 ms"), "nothing more is enqueued");
}

void check_told() {
  Ranks ranks;
  ranks.join_all();
  cpu::abort_group(ranks.group.id, "a test says so", ErrorCode::kDevice);
  expect_one_end(ranks, "an end from elsewhere: all communicators end once");
  expect(contains(thrown([&] { ranks.sum(1, 8); }), "a test says so"), "and its reason stays");
}

void check_broken() {
  Ranks ranks;
  ranks.here.broken_rank = 1;
  ranks.join_all();
  expect_one_end(ranks, "an error of NCCL's: all communicators end once");
  expect(contains(reason(*ranks.of[0]), "NCCL says of rank 1: a peer is gone"), "and is told");
}

void check_leaving() {
  Ranks ranks;
  ranks.join_all();
  ranks.here.graphs = true;
  const auto begin = Clock::now();
  ranks.of.erase(ranks.of.begin());
  expect(Clock::now() - begin < milliseconds(1000), "a rank that leaves waits for no graph");
  until_end(*ranks.of[0]);
  expect(contains(reason(*ranks.of[0]), "rank 0 has left"), "the others are told");
  expect(contains(thrown([&] { ranks.sum(0, 8); }), "rank 0 has left"), "and go no further");
  {
    const std::lock_guard lock(ranks.here.mutex);
    ranks.here.graphs = false;  // as its backend destroys them ahead of its member
  }
  ranks.of.clear();
  expect(ranks.here.aborted == 4, "the last rank is gone when all communicators are");
}

void check_refusals() {
  {
    Ranks ranks;
    ranks.join(0, 4);
    expect(contains(thrown([&] { ranks.join(1, 4); }), "two have GPU 4"), "one GPU for two ranks");
  }
  for (const int at : {0, 1}) {
    Ranks ranks;
    ranks.here.fails_at = at;
    ranks.join(0, 4);
    const std::string said = thrown([&] { ranks.join(1, 5); });
    expect(contains(said, "NCCL 2.99.0: no network"), "communicators that cannot be made");
    expect(contains(thrown([&] { ranks.sum(0, 8); }), "no network"), "the rank that waits is told");
    expect(ranks.here.count("abort 0.0") == at, "those that were made end");
  }
  Ranks ranks;
  ranks.join(0, 4);
  cpu::abort_group(ranks.group.id, "rank 1 does not come", ErrorCode::kDevice);
  expect(contains(thrown([&] { ranks.sum(0, 8); }), "does not come"), "nobody waits for ever");
}

}  // namespace

int main() {
  for (const auto check : {check_joining, check_calls, check_many, check_stuck, check_told,
                           check_broken, check_leaving, check_refusals})
    check();
  std::printf("%d checks failed\n", failed);
  return failed;
}
