// See comm.h.
//
//   all_reduce   publish x | barrier | sum the own share of all x, in the order of ranks | barrier
//   |
//                copy everybody's share
//
// A rank may still copy shares when another has begun the next op: that one only publishes, and
// writes to its share behind the next barrier, where all have copied. Ranks sleep on a condition
// variable and never spin: there may be more of them than processors.
#include "cpu/runtime/comm.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/error.h"

namespace inferd::cpu {
namespace {

// What the ranks of a group share. `mutex` guards all but the contents that `at` and `shares` point
// to, which a barrier hands over.
struct Group {
  explicit Group(int32_t size)
      : size(size),
        joined(static_cast<size_t>(size)),
        at(static_cast<size_t>(size)),
        shares(static_cast<size_t>(size)) {}

  const int32_t size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> joined;
  std::vector<Tensor> at;                  // what each rank published
  std::vector<std::vector<float>> shares;  // sums of each rank's share
  int32_t arrived = 0;                     // at the barrier
  uint64_t passed = 0;                     // barriers
  bool ended = false;
  std::string reason;

  void end(const std::string& why) {
    const std::lock_guard lock(mutex);
    if (ended) return;
    ended = true;
    reason = why;
    changed.notify_all();
  }
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::kDevice, "The ranks of the model have parted: " + reason + ".");
  }
};

std::mutex registry_mutex;
std::map<uint64_t, std::weak_ptr<Group>>& registry() {
  static std::map<uint64_t, std::weak_ptr<Group>> groups;
  return groups;
}

std::shared_ptr<Group> find_group(uint64_t id, int32_t size) {
  const std::lock_guard lock(registry_mutex);
  std::erase_if(registry(), [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Group>& known = registry()[id];
  std::shared_ptr<Group> group = known.lock();
  if (group == nullptr) known = group = std::make_shared<Group>(size);
  return group;
}

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<Group> group, int32_t rank, std::chrono::milliseconds limit)
      : group_(std::move(group)), rank_(rank), limit_(limit) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return group_->size; }
  void set_limit(std::chrono::milliseconds limit) override { limit_ = limit; }
  void abort(const std::string& reason) override { group_->end(reason); }

  void barrier() override {
    Group& g = *group_;
    std::unique_lock lock(g.mutex);
    if (g.ended) g.fail();
    const uint64_t mine = g.passed;
    if (++g.arrived == g.size) {
      g.arrived = 0;
      ++g.passed;
      g.changed.notify_all();
      return;
    }
    const bool in_time =
        g.changed.wait_for(lock, limit_, [&] { return g.ended || g.passed != mine; });
    if (g.passed != mine) return;
    if (!in_time && !g.ended) {
      g.ended = true;
      g.reason = format("rank %d waited %lld ms for %d of %d others", rank_,
                        static_cast<long long>(limit_.count()), g.size - g.arrived, g.size - 1);
      g.changed.notify_all();
    }
    g.fail();
  }

  void all_reduce(Tensor inout) override {
    Group& g = *group_;
    publish(inout);
    barrier();
    const int64_t cols = inout.cols();
    const auto [first, end] = share_of(rank_, inout.size());
    std::vector<float>& sums = g.shares[static_cast<size_t>(rank_)];
    sums.resize(static_cast<size_t>(end - first));
    for (int64_t i = first; i < end; ++i) {
      float sum = 0;
      for (const Tensor& x : g.at) sum += *element(x, i, cols);
      sums[static_cast<size_t>(i - first)] = sum;
    }
    barrier();
    for (int32_t r = 0; r < g.size; ++r) {
      const auto [begin, stop] = share_of(r, inout.size());
      for (int64_t i = begin; i < stop; ++i)
        *element(inout, i, cols) = g.shares[static_cast<size_t>(r)][static_cast<size_t>(i - begin)];
    }
  }

  void all_gather(Tensor out, const Tensor& part) override {
    Group& g = *group_;
    if (out.rows() != part.rows() || out.cols() != g.size * part.cols())
      throw Error(ErrorCode::kUsage, "all_gather: the parts do not add up to the whole");
    publish(part);
    barrier();
    for (int32_t r = 0; r < g.size; ++r) {
      for (int64_t row = 0; row < part.rows(); ++row) {
        const Tensor& from = g.at[static_cast<size_t>(r)];
        std::memcpy(out.as<float>() + row * out.stride[0] + r * part.cols(),
                    from.as<float>() + row * from.stride[0],
                    static_cast<size_t>(part.cols()) * sizeof(float));
      }
    }
    barrier();  // the parts are their owners' again
  }

 private:
  static float* element(const Tensor& t, int64_t i, int64_t cols) {
    return t.as<float>() + i / cols * t.stride[0] + i % cols;
  }
  std::pair<int64_t, int64_t> share_of(int32_t rank, int64_t total) const {
    return {total * rank / group_->size, total * (rank + 1) / group_->size};
  }
  void publish(const Tensor& t) {
    if (t.dtype != DType::kF32) throw Error(ErrorCode::kUsage, "ranks on the CPU share float32");
    const std::lock_guard lock(group_->mutex);
    group_->at[static_cast<size_t>(rank_)] = t;
  }

  std::shared_ptr<Group> group_;
  int32_t rank_;
  std::chrono::milliseconds limit_;
};

}  // namespace

std::unique_ptr<Comm> join_group(uint64_t id, int32_t rank, int32_t size,
                                 std::chrono::milliseconds limit) {
  if (size < 1 || rank < 0 || rank >= size)
    throw Error(ErrorCode::kUsage, format("There is no rank %d of %d.", rank, size));
  std::shared_ptr<Group> group = find_group(id, size);
  {
    const std::lock_guard lock(group->mutex);
    if (group->size != size || group->joined[static_cast<size_t>(rank)])
      throw Error(ErrorCode::kUsage, format("Rank %d of %d cannot join this group.", rank, size));
    group->joined[static_cast<size_t>(rank)] = true;
  }
  auto comm = std::make_unique<ThreadComm>(std::move(group), rank, limit);
  comm->barrier();
  return comm;
}

void abort_group(uint64_t id, const std::string& reason) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(registry_mutex);
    const auto found = registry().find(id);
    if (found != registry().end()) group = found->second.lock();
  }
  if (group != nullptr) group->end(reason);
}

}  // namespace inferd::cpu
