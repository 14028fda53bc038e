// See nccl_group.h.
#include "cuda/ranks/nccl/nccl_group.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "core/error.h"
#include "cuda/ranks/group_registry.h"
#include "cuda/runtime/check.h"

namespace inferd::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Of all ranks, on each device.
constexpr int64_t kGatheredBytes = 64 << 20;
// More ranks than two gather up to this much of each; NCCL itself sums larger messages.
constexpr int64_t kMostGathered = 256 << 10;
// An end of the group is seen within this.
constexpr milliseconds kLook{20};
// A call of NCCL takes microseconds, unless it waits for room on a stream that waits for another
// rank: that one goes on when kernels leave, and so is not waited for any longer.
constexpr milliseconds kCallTime{1000};
// The last rank gives memory back before the next group asks for it.
constexpr milliseconds kCloseTime{5000};

enum Work : size_t { kEager, kRecorded, kWorks };

void check_nccl(int result, const char* what) {
  if (result == 0) return;
  throw Error(ErrorCode::kDevice,
              format("%s failed in NCCL %s: %s; NCCL_DEBUG=WARN makes it say more.", what,
                     nccl().version.c_str(), nccl().error_text(result)));
}

NcclType nccl_type(SumType type) {
  switch (type) {
    case SumType::kF16:
      return NcclType::kF16;
    case SumType::kBF16:
      return NcclType::kBF16;
    default:
      return NcclType::kF32;
  }
}

}  // namespace

struct NcclGroup {
  // What the watch knows of a rank.
  struct Rank {
    int32_t device = -1;   // -1: has not come
    Comm* host = nullptr;  // null: is not here, or not any more
    const volatile uint32_t* seen = nullptr;
    uint32_t last = 0;
    Clock::time_point since{};
    milliseconds limit{};
  };

  explicit NcclGroup(int32_t size) : ranks(static_cast<size_t>(size)) {
    for (auto& list : comms) list.resize(ranks.size());
  }

  void make_comms();
  void watch();
  void end_comms();

  // Called with the lock: the first reason to end the group, or "".
  std::string reason_to_end(Clock::time_point now);

  std::mutex mutex;  // guards all but `comms`, which stay as they are once `ready`, and `ended`
  std::condition_variable changed;
  std::vector<Rank> ranks;
  std::array<std::vector<NcclComm>, kWorks> comms;
  bool ready = false;
  int32_t left = -1;  // a rank that has left
  bool closed = false;
  std::atomic<bool> ended{false};
  // Held shared inside of calls, so that none of them finds its communicator gone.
  std::shared_timed_mutex calls;
};

// On the thread of the rank that comes last, whose device the caller sets again; without the lock,
// as it takes a while: devices are all known, and nobody looks at `comms` before they are ready.
void NcclGroup::make_comms() {
  const NcclLibrary& library = nccl();
  const auto size = static_cast<int>(ranks.size());
  // A group of which some ranks are missing would wait for them: what may fail comes first.
  for (const Rank& rank : ranks) check(cudaSetDevice(rank.device), "cudaSetDevice");
  for (std::vector<NcclComm>& list : comms) {
    std::vector<NcclComm> made(ranks.size());  // NCCL may have freed those of a group that fails
    NcclId id{};
    check_nccl(library.get_id(&id), "Starting a group");
    check_nccl(library.group_start(), "Starting a group");
    int result = 0;
    for (int r = 0; r < size && result == 0; ++r) {
      const auto rank = static_cast<size_t>(r);
      (void)cudaSetDevice(ranks[rank].device);
      result = library.join(&made[rank], size, id, r);
    }
    const int joined = library.group_end();
    check_nccl(result != 0 ? result : joined, "Joining the GPUs of a group");
    list = std::move(made);
  }
}

std::string NcclGroup::reason_to_end(Clock::time_point now) {
  if (left >= 0) return format("rank %d has left", left);
  for (size_t r = 0; r < ranks.size(); ++r) {
    Rank& rank = ranks[r];
    if (rank.host->ended()) return "it has ended";  // and has a reason
    const uint32_t seen = *rank.seen;
    if (seen % 2 == 0 || seen != rank.last) {
      rank.last = seen;
      rank.since = now;
    } else if (now - rank.since > rank.limit) {
      return format("rank %zu waited %lld ms for the others", r,
                    static_cast<long long>(rank.limit.count()));
    }
    for (const std::vector<NcclComm>& list : comms) {
      int error = 0;
      const int asked = nccl().async_error(list[r], &error);
      if (asked != 0) error = asked;
      if (error != 0) return format("NCCL says of rank %zu: %s", r, nccl().error_text(error));
    }
  }
  return "";
}

// A thread of its own, which holds the group.
void NcclGroup::watch() {
  std::unique_lock lock(mutex);
  std::string reason;
  while ((reason = reason_to_end(Clock::now())).empty()) changed.wait_for(lock, kLook);
  // The host side first, so that whoever finds its kernels gone knows why.
  for (const Rank& rank : ranks) {
    if (rank.host != nullptr) rank.host->abort(reason);
  }
  ended = true;
  lock.unlock();
  end_comms();
  lock.lock();
  closed = true;
  changed.notify_all();
}

void NcclGroup::end_comms() {
  // Calls that began before `ended` are over behind this, and no other begins.
  if (calls.try_lock_for(kCallTime)) calls.unlock();
  // Each on a thread: its kernels leave at once, and the call may wait for those of the others, as
  // they share streams and devices.
  std::vector<std::thread> threads;
  for (const std::vector<NcclComm>& list : comms) {
    for (const NcclComm comm : list) {
      if (comm != nullptr) threads.emplace_back([comm] { (void)nccl().abort(comm); });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

NcclMember::NcclMember(const RankGroup& group, int32_t device, int32_t sm_count,
                       std::unique_ptr<Comm> host)
    : RankMember(group, std::move(host)),
      sm_count_(sm_count),
      piece_bytes_(kGatheredBytes / group.size / 16 * 16),
      group_(find_group<NcclGroup>(group)) {
  gathered_ = allocate_device(static_cast<size_t>(piece_bytes_ * group.size));
  passed_ = allocate_device(sizeof(uint32_t));
  seen_ = allocate_pinned(sizeof(uint32_t));
  progress_ = {static_cast<uint32_t*>(passed_.get()), static_cast<uint32_t*>(seen_.get())};
  *progress_.seen = 0;
  check(cudaMemset(passed_.get(), 0, sizeof(uint32_t)), "clearing memory");
  check(cudaDeviceSynchronize(), "clearing memory");

  std::unique_lock lock(group_->mutex);
  const auto is_here = [](const NcclGroup::Rank& rank) { return rank.device >= 0; };
  for (const NcclGroup::Rank& other : group_->ranks) {
    if (other.device == device)
      throw Error(ErrorCode::kUnsupported,
                  format("NCCL gives each rank a GPU of its own, and two have GPU %d; name "
                         "different ones in inference.device_ids.",
                         device));
  }
  group_->ranks[static_cast<size_t>(group.rank)] = {.device = device,
                                                    .host = host_.get(),
                                                    .seen = progress_.seen,
                                                    .last = 0,
                                                    .since = {},
                                                    .limit = own_.limit};
  if (!std::all_of(group_->ranks.begin(), group_->ranks.end(), is_here)) return;
  lock.unlock();
  try {
    group_->make_comms();
    check(cudaSetDevice(device), "cudaSetDevice");
  } catch (const Error& error) {
    (void)cudaSetDevice(device);
    host_->abort(error.what(), error.code);
    group_->end_comms();
    throw;
  }
  lock.lock();
  group_->ready = true;
  group_->changed.notify_all();
  std::thread([group = group_] { group->watch(); }).detach();
}

NcclMember::~NcclMember() {
  std::unique_lock lock(group_->mutex);
  group_->ranks[static_cast<size_t>(own_.rank)].host = nullptr;
  if (group_->left < 0) group_->left = own_.rank;
  if (!group_->ready) return;
  group_->changed.notify_all();
  const bool last = std::none_of(group_->ranks.begin(), group_->ranks.end(),
                                 [](const NcclGroup::Rank& rank) { return rank.host != nullptr; });
  if (last) group_->changed.wait_for(lock, kCloseTime, [&] { return group_->closed; });
}

NcclComm NcclMember::comm_for(cudaStream_t stream) {
  if (!joined_) {
    std::unique_lock lock(group_->mutex);
    await_all(lock, group_->changed, [&] { return group_->ready; });
    joined_ = true;
  }
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "a collective");
  const Work work = capture == cudaStreamCaptureStatusNone ? kEager : kRecorded;
  return group_->comms[work][static_cast<size_t>(own_.rank)];
}

template <typename Call>
void NcclMember::enqueue(const char* what, const Launch& launch, const Call& call) {
  const NcclComm comm = comm_for(launch.stream);
  check(note_begin(progress_, launch), what);
  const std::shared_lock calling(group_->calls);
  if (group_->ended) {
    host_->check_end();
    throw Error(ErrorCode::kDevice, "The ranks of the model have parted.");
  }
  check_nccl(call(comm), what);
}

void NcclMember::gather(const void* part, int64_t bytes, const Launch& launch) {
  enqueue("all_gather", launch, [&](NcclComm comm) {
    return nccl().all_gather(part, gathered_.get(), static_cast<size_t>(bytes), NcclType::kBytes,
                             comm, launch.stream);
  });
}

void NcclMember::all_reduce(const SumArgs& args, const Launch& launch) {
  const int64_t each = value_bytes(args.type), bytes = args.count * each;
  const bool gathers = own_.size == 2 || bytes <= kMostGathered;
  const int64_t most = gathers ? piece_bytes_ : piece_bytes_ * own_.size;
  const auto* x = static_cast<const std::byte*>(args.x);
  for (int64_t at = 0; at < bytes; at += most) {
    const int64_t piece = std::min(most, bytes - at);
    if (gathers) {
      gather(x + at, piece, launch);
    } else {
      enqueue("all_reduce", launch, [&](NcclComm comm) {
        return nccl().all_reduce(x + at, gathered_.get(), static_cast<size_t>(piece / each),
                                 nccl_type(args.type), NcclLibrary::kSum, comm, launch.stream);
      });
    }
    SumArgs sum = args;
    sum.inout = static_cast<std::byte*>(args.inout) + at;
    sum.x = gathered_.get();
    sum.count = piece / each;
    // Plainly: what came before it is not a kernel of ours.
    check(sum_gathered(progress_, sum, gathers ? own_.size : 1, sm_count_, Launch(launch.stream)),
          "all_reduce");
  }
}

void NcclMember::all_gather(void* out, const void* part, int64_t rows, int64_t row_bytes,
                            const Launch& launch) {
  if (row_bytes > piece_bytes_)
    throw Error(ErrorCode::kUsage, "ranks on GPUs gather narrower rows");
  if (row_bytes == 0) return;
  const int64_t at_once = piece_bytes_ / row_bytes;
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    gather(static_cast<const std::byte*>(part) + first * row_bytes, count * row_bytes, launch);
    check(place_gathered(progress_,
                         {.out = static_cast<std::byte*>(out) + first * own_.size * row_bytes,
                          .gathered = gathered_.get(),
                          .parts = own_.size,
                          .rows = count,
                          .row_bytes = row_bytes},
                         sm_count_, Launch(launch.stream)),
          "all_gather");
  }
}

// The watch looks at the rest. A step that ended beside the end of the group may hold anything.
void NcclMember::check_end(bool over) {
  if (over && group_->ended) host_->check_end();
}

}  // namespace inferd::cuda
