// What the ranks of a group, which compute one model together, do with each other. A rank is a
// thread of this process with a backend of its own.
//
// All ranks call the same collectives in the same order with the same sizes; only the rows that
// gather_rows and scatter_sums bring together may be more on one rank than on another, or none. A
// group ends once and for all of them: when a rank waits for longer than its limit, or when anybody
// calls abort(), every wait of every rank, present or future, throws an Error with the reason. So
// no rank waits for one that is gone, and none is left behind.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace inferd {

// Who carries sums between ranks on GPUs: kernels over memory of each other, or NCCL. Ranks in host
// memory have one way.
enum class AllReduce : uint8_t { kAuto, kOwn, kNccl };

// Which rank of which group a backend is.
struct RankGroup {
  // New for each life of a group: ranks of an earlier one can never meet those of the next.
  uint64_t id = 0;
  int32_t rank = 0, size = 1;
  // Nobody else comes: sums are what this rank brings itself. For measuring its share of a model.
  bool alone = false;
  // How long a rank waits for the others in one collective.
  std::chrono::milliseconds limit{10'000};
  // The same for all ranks, as is `devices`: that of each rank, where each has one. Without them
  // kAuto is kOwn.
  AllReduce all_reduce = AllReduce::kAuto;
  std::vector<int32_t> devices{};
  // For tests: the collective, counted from 0, in which this rank fails (sleep 0) or sleeps; -1:
  // none.
  int64_t fault_at = -1;
  std::chrono::milliseconds fault_sleep{0};
};

// Where the rows of a rank lie among those that all ranks brought.
struct GatheredRows {
  int64_t first = 0, total = 0;
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  // inout [rows, cols] = its sum over the ranks, added in the order of ranks and rounded once, so
  // that all ranks hold the same bits. Throws when the group has ended.
  virtual void all_reduce(Tensor inout) = 0;
  // out [rows, size * cols]: columns [r * cols, (r + 1) * cols) are the `part` [rows, cols] of rank
  // r. Throws when the group has ended.
  virtual void all_gather(Tensor out, const Tensor& part) = 0;
  // The front of `out` = the rows of `part` of rank 0, then those of rank 1, ..: each brings as
  // many as it has. Throws Error(kUsage) where `out` has no room for them, and when the group has
  // ended.
  virtual GatheredRows gather_rows(Tensor out, const Tensor& part) = 0;
  // out[i] = sums[first + i], added over the ranks in their order and rounded once; `sums`, as long
  // on every rank, says what each has to add to the rows of all. Throws when the group has ended.
  virtual void scatter_sums(Tensor out, const Tensor& sums, int64_t first) = 0;
  // Returns when all ranks are here. Throws when the group has ended.
  virtual void barrier() = 0;
  // Each of `values`, host memory, becomes the least that a rank gave. For start-up. Throws
  // when the group has ended.
  virtual void minimum(std::span<int32_t> values) = 0;

  virtual bool ended() const = 0;
  // Throws when the group has ended.
  virtual void check_end() const = 0;

  // How long a rank waits for the others in one collective, from now on.
  virtual void set_limit(std::chrono::milliseconds limit) = 0;
  // Ends the group; the first reason stays, and `code` is that of all ranks' errors. Any thread may
  // call it; it waits for nobody.
  virtual void abort(const std::string& reason, ErrorCode code = ErrorCode::kDevice) = 0;
};

}  // namespace inferd
