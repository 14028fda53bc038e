// The mailboxes of the GPUs of a group. Each rank brings its own; they stay until the last rank is
// gone, since kernels of others may write to them as long as these live.
//
// Thread: that of the rank; ranks of a group are threads of one process.
#pragma once
#include <memory>

#include "core/comm.h"
#include "cuda/ranks/links.h"
#include "cuda/ranks/rank_member.h"
#include "cuda/ranks/sum_way.h"
#include "cuda/runtime/memory.h"

namespace inferd::cuda {

struct MailboxGroup;

class MailboxMember final : public RankMember {
 public:
  // On the current device, of so many multiprocessors: makes its mailbox, and has it and the
  // devices of the ranks that came before reach each other. Throws Error(kUnsupported) where they
  // cannot.
  MailboxMember(const RankGroup& group, int32_t device, int32_t sm_count,
                std::unique_ptr<Comm> host);
  ~MailboxMember() override;

  // Waits until all ranks have come.
  const RankLinks& links();
  // Rank 0 measures which sums go in two shots.
  void meet() override;
  void all_reduce(const SumArgs& args, const Launch& launch) override;
  void all_gather(void* out, const void* part, int64_t rows, int64_t row_bytes,
                  const Launch& launch) override;
  void check_end(bool over) override;
  bool crowded() const override { return crowded_; }

 private:
  const int32_t device_, sm_count_;
  std::shared_ptr<MailboxGroup> group_;
  DeviceMemory count_;
  PinnedMemory end_;
  RankLinks links_{};
  SumWay way_;  // of all ranks; known with links_
  bool linked_ = false, met_ = false, crowded_ = false;
};

}  // namespace inferd::cuda
