// The mailboxes of the GPUs of a group. Each rank brings its own; they stay until the last rank is
// gone, since kernels of others may write to them as long as these live.
//
// Thread: that of the rank; ranks of a group are threads of one process.
#pragma once
#include <memory>

#include "core/comm.h"
#include "cuda/ranks/links.h"
#include "cuda/runtime/memory.h"

namespace inferd::cuda {

struct MailboxGroup;

class RankMember {
 public:
  // On the current device: makes its mailbox, and has it and the devices of the ranks that came
  // before reach each other. Throws Error(kUnsupported) where they cannot.
  RankMember(const RankGroup& group, int32_t device, std::unique_ptr<Comm> host);
  ~RankMember();

  // Waits until all ranks have come, at most for their limit or a minute. Throws when they do not.
  const RankLinks& links();
  // Host side of the group.
  Comm& host() { return *host_; }
  // Counts an op that is enqueued; fails or sleeps where a test asks for it.
  void count_op();
  // Makes kernels leave once the group has ended. Throws when they have, and says why.
  void check_end(bool over);
  // Two ranks share a device.
  bool crowded() const { return crowded_; }

 private:
  const RankGroup own_;
  const int32_t device_;
  std::unique_ptr<Comm> host_;
  std::shared_ptr<MailboxGroup> group_;
  DeviceMemory count_;
  PinnedMemory end_;
  RankLinks links_{};
  bool linked_ = false, crowded_ = false;
  int64_t ops_ = 0;
};

}  // namespace inferd::cuda
