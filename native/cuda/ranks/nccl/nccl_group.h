// A group of GPUs whose collectives NCCL carries: for those that do not reach each other's memory,
// or because it is asked for.
//
// Whoever comes last makes the communicators of all ranks, so that none of them waits for another
// in a call of NCCL: one for work that is recorded in graphs and one for the rest, as NCCL does not
// like both on one. Then a thread watches the group: when a rank stays in a collective for longer
// than the limit, the host side has ended, NCCL tells of an error or a rank leaves, it ends the
// group and all its communicators, once, and their kernels leave. It may stay in that last call for
// as long as graphs hold a communicator; nobody waits for it but the last rank, which has none.
//
// Sums are of gathered parts, in the order of ranks: see gathered.cu.
#pragma once
#include <memory>

#include "cuda/ranks/nccl/gathered.h"
#include "cuda/ranks/nccl/nccl_library.h"
#include "cuda/ranks/rank_member.h"
#include "cuda/runtime/memory.h"

namespace inferd::cuda {

struct NcclGroup;

class NcclMember final : public RankMember {
 public:
  // On the current device, of so many multiprocessors. Throws Error(kUnsupported) where another
  // rank has the device, Error(kDevice) when NCCL does not join them.
  NcclMember(const RankGroup& group, int32_t device, int32_t sm_count, std::unique_ptr<Comm> host);
  ~NcclMember() override;

  void all_reduce(const SumArgs& args, const Launch& launch) override;
  void all_gather(void* out, const void* part, int64_t rows, int64_t row_bytes,
                  const Launch& launch) override;
  void check_end(bool over) override;

 private:
  // That of the work which the stream takes now.
  NcclComm comm_for(cudaStream_t stream);
  // Enqueues a call of NCCL, which gets a communicator.
  template <typename Call>
  void enqueue(const char* what, const Launch& launch, const Call& call);
  void gather(const void* part, int64_t bytes, const Launch& launch);

  const int32_t sm_count_;
  const int64_t piece_bytes_;  // of one rank, that are gathered at once
  std::shared_ptr<NcclGroup> group_;
  DeviceMemory gathered_, passed_;
  PinnedMemory seen_;
  Progress progress_{};
  bool joined_ = false;
};

}  // namespace inferd::cuda
