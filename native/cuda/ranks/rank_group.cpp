// See rank_group.h.
#include "cuda/ranks/rank_group.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "cuda/ranks/group_registry.h"
#include "cuda/ranks/sum_timing.h"
#include "cuda/ranks/two_shot.h"
#include "cuda/runtime/check.h"

namespace inferd::cuda {

struct MailboxGroup {
  struct Rank {
    int32_t device = -1;  // -1: has not come
    int32_t sm_count = 0;
    DeviceMemory box;
    OpCount* count = nullptr;
  };
  explicit MailboxGroup(int32_t size)
      : ranks(static_cast<size_t>(size)), way(usual_sum_way(size)) {}

  // When all have come; without the end of a rank and its limit.
  RankLinks links_of(size_t rank) const;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Rank> ranks;
  SumWay way;
};

namespace {

void reach(int32_t from, int32_t to) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
  if (can == 0) {
    throw Error(ErrorCode::kUnsupported,
                format("GPU %d cannot reach the memory of GPU %d, which ranks of one model need; "
                       "choose others in inference.device_ids.",
                       from, to));
  }
  check(cudaSetDevice(from), "cudaSetDevice");
  const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
  } else {
    check(status, "cudaDeviceEnablePeerAccess");
  }
}

// Times both ways on all devices, of which none computes anything.
SumWay measure(const MailboxGroup& group) {
  std::vector<TimedRank> ranks;
  std::set<int32_t> devices;
  for (size_t r = 0; r < group.ranks.size(); ++r) {
    const MailboxGroup::Rank& rank = group.ranks[r];
    ranks.push_back({.device = rank.device, .sm_count = rank.sm_count, .links = group.links_of(r)});
    devices.insert(rank.device);
  }
  const auto size = static_cast<int32_t>(ranks.size());
  // The kernels of ranks that share a device might not all fit on it at once.
  if (devices.size() < ranks.size()) return usual_sum_way(size);
  return measured_sum_way(size, time_sums(ranks));
}

volatile uint32_t* word_of(const PinnedMemory& memory) {
  return static_cast<volatile uint32_t*>(memory.get());
}

}  // namespace

RankLinks MailboxGroup::links_of(size_t rank) const {
  RankLinks links{};
  links.rank = static_cast<int32_t>(rank);
  links.size = static_cast<int32_t>(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r)
    links.boxes[r] = static_cast<std::byte*>(ranks[r].box.get());
  links.count = ranks[rank].count;
  return links;
}

MailboxMember::MailboxMember(const RankGroup& group, int32_t device, int32_t sm_count,
                             std::unique_ptr<Comm> host)
    : RankMember(group, std::move(host)),
      device_(device),
      sm_count_(sm_count),
      group_(find_group<MailboxGroup>(group)) {
  const auto bytes = static_cast<size_t>(mailbox_bytes(group.size));
  DeviceMemory box = allocate_device(bytes);
  count_ = allocate_device(sizeof(OpCount));
  end_ = allocate_pinned(sizeof(uint32_t));
  *word_of(end_) = 0;
  check(cudaMemset(box.get(), 0, bytes), "clearing a mailbox");
  check(cudaMemset(count_.get(), 0, sizeof(OpCount)), "clearing a mailbox");
  check(cudaDeviceSynchronize(), "clearing a mailbox");
  const std::lock_guard lock(group_->mutex);
  for (const MailboxGroup::Rank& other : group_->ranks) {
    if (other.device == device) crowded_ = true;
    if (other.device < 0 || other.device == device) continue;
    reach(other.device, device);
    reach(device, other.device);
  }
  check(cudaSetDevice(device), "cudaSetDevice");
  group_->ranks[static_cast<size_t>(group.rank)] = {.device = device,
                                                    .sm_count = sm_count,
                                                    .box = std::move(box),
                                                    .count = static_cast<OpCount*>(count_.get())};
  group_->changed.notify_all();
}

MailboxMember::~MailboxMember() = default;

const RankLinks& MailboxMember::links() {
  if (linked_) return links_;
  std::unique_lock lock(group_->mutex);
  await_all(lock, group_->changed, [&] {
    return std::none_of(group_->ranks.begin(), group_->ranks.end(),
                        [](const MailboxGroup::Rank& rank) { return rank.device < 0; });
  });
  links_ = group_->links_of(static_cast<size_t>(own_.rank));
  way_ = group_->way;
  const auto here =
      std::count_if(group_->ranks.begin(), group_->ranks.end(),
                    [this](const MailboxGroup::Rank& rank) { return rank.device == device_; });
  crowded_ = crowded_ || here > 1;
  links_.end = static_cast<uint32_t*>(end_.get());
  links_.limit_ns = static_cast<uint64_t>(own_.limit.count()) * 1'000'000;
  linked_ = true;
  return links_;
}

// Between the barriers the others only wait, so that rank 0 has all devices for itself.
void MailboxMember::meet() {
  if (met_ || own_.size < 3) return;  // two have no choice
  met_ = true;
  host_->barrier();
  if (own_.rank == 0) {
    const SumWay way = measure(*group_);
    check(cudaSetDevice(device_), "cudaSetDevice");
    const std::lock_guard lock(group_->mutex);
    group_->way = way;
  }
  host_->barrier();
  const std::lock_guard lock(group_->mutex);
  way_ = group_->way;
}

void MailboxMember::all_reduce(const SumArgs& args, const Launch& launch) {
  const RankLinks& l = links();
  const bool one_shot = args.count * value_bytes(args.type) < way_.two_shot_from;
  const auto sum = one_shot ? cuda::all_reduce : cuda::two_shot_all_reduce;
  check(sum(l, args, sm_count_, launch), "all_reduce");
}

void MailboxMember::all_gather(void* out, const void* part, int64_t rows, int64_t row_bytes,
                               const Launch& launch) {
  check(cuda::all_gather(links(), out, part, rows, row_bytes, sm_count_, launch), "all_gather");
}

void MailboxMember::check_end(bool over) {
  volatile uint32_t* end = word_of(end_);
  if (*end == kTooLong) {
    host_->abort(format("rank %d waited %lld ms for the others", own_.rank,
                        static_cast<long long>(own_.limit.count())));
  }
  if (host_->ended() && *end == 0) *end = kTold;
  if (over && *end != 0) host_->check_end();
}

}  // namespace inferd::cuda
