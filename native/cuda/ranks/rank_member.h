// A rank of several, as the class behind the op interface sees it: what it does with the other GPUs
// on its stream, and the end of its group. Two ways to do it, one of which is chosen when a group
// is joined: over memory of each other (rank_group.h), or by NCCL (nccl/nccl_group.h).
//
// Thread: that of the rank; ranks of a group are threads of one process.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "core/comm.h"
#include "cuda/ranks/collectives.h"

namespace inferd::cuda {

class RankMember {
 public:
  virtual ~RankMember() = default;
  RankMember(const RankMember&) = delete;
  RankMember& operator=(const RankMember&) = delete;

  // What takes all ranks at once, and each waits for the others in it: before the first collective,
  // where each has a thread of its own. Once; without it a group does what suits most.
  virtual void meet() {}
  // Enqueue what collectives.h says of them, with its limits. May be recorded.
  virtual void all_reduce(const SumArgs& args, const Launch& launch) = 0;
  virtual void all_gather(void* out, const void* part, int64_t rows, int64_t row_bytes,
                          const Launch& launch) = 0;

  // Makes kernels leave once the group has ended. Throws when they have, and says why; `over`: the
  // step that is waited for has ended.
  virtual void check_end(bool over) = 0;
  // Two ranks share a device.
  virtual bool crowded() const { return false; }

  // Host side of the group.
  Comm& host() { return *host_; }
  // Counts an op that is enqueued; fails or sleeps where a test asks for it.
  void count_op();

 protected:
  // Throws Error(kUnsupported) for a group of too many.
  RankMember(const RankGroup& group, std::unique_ptr<Comm> host);

  // Waits until all ranks have come, at most for their limit or a minute. Throws when they do not.
  void await_all(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                 const std::function<bool()>& all);

  const RankGroup own_;
  const std::unique_ptr<Comm> host_;

 private:
  int64_t ops_ = 0;
};

}  // namespace inferd::cuda
