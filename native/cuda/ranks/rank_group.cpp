// See rank_group.h.
#include "cuda/ranks/rank_group.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "cuda/ranks/group_registry.h"
#include "cuda/runtime/check.h"

namespace inferd::cuda {

struct MailboxGroup {
  explicit MailboxGroup(int32_t size)
      : boxes(static_cast<size_t>(size)), devices(static_cast<size_t>(size), -1) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<DeviceMemory> boxes;
  std::vector<int32_t> devices;  // -1: has not come
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

volatile uint32_t* word_of(const PinnedMemory& memory) {
  return static_cast<volatile uint32_t*>(memory.get());
}

}  // namespace

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
  for (const int32_t other : group_->devices) {
    if (other == device) crowded_ = true;
    if (other < 0 || other == device) continue;
    reach(other, device);
    reach(device, other);
  }
  check(cudaSetDevice(device), "cudaSetDevice");
  const auto rank = static_cast<size_t>(group.rank);
  group_->boxes[rank] = std::move(box);
  group_->devices[rank] = device;
  group_->changed.notify_all();
}

MailboxMember::~MailboxMember() = default;

const RankLinks& MailboxMember::links() {
  if (linked_) return links_;
  std::unique_lock lock(group_->mutex);
  await_all(lock, group_->changed, [&] {
    return std::none_of(group_->devices.begin(), group_->devices.end(),
                        [](int32_t d) { return d < 0; });
  });
  links_.rank = own_.rank;
  links_.size = own_.size;
  for (size_t r = 0; r < group_->boxes.size(); ++r)
    links_.boxes[r] = static_cast<std::byte*>(group_->boxes[r].get());
  crowded_ = crowded_ || std::count(group_->devices.begin(), group_->devices.end(), device_) > 1;
  links_.count = static_cast<OpCount*>(count_.get());
  links_.end = static_cast<uint32_t*>(end_.get());
  links_.limit_ns = static_cast<uint64_t>(own_.limit.count()) * 1'000'000;
  linked_ = true;
  return links_;
}

void MailboxMember::all_reduce(const SumArgs& args, const Launch& launch) {
  check(cuda::all_reduce(links(), args, sm_count_, launch), "all_reduce");
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
