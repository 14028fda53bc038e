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
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"

namespace inferd::cpu {
namespace {

// Why a group has ended.
struct End {
  std::string reason;
  ErrorCode code = ErrorCode::kDevice;
};

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
  int32_t reading = 0;                     // ranks that may look at what others published
  bool ended = false;
  End how{};

  void end(const End& why) {
    const std::lock_guard lock(mutex);
    if (ended) return;
    ended = true;
    how = why;
    changed.notify_all();
  }
};

// While it lives, a rank looks at memory of the others, which keeps them from leaving the group.
class Reading {
 public:
  explicit Reading(Group& group) : group_(group) {}
  ~Reading() {
    std::unique_lock lock(group_.mutex);
    if (--group_.reading == 0) group_.changed.notify_all();
    // One that leaves by an exception takes its own memory away.
    if (std::uncaught_exceptions() > 0)
      group_.changed.wait(lock, [&] { return group_.reading == 0; });
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  Group& group_;
};

[[noreturn]] void fail(const End& end) {
  throw Error(end.code, "The ranks of the model have parted: " + end.reason +
                            (end.reason.ends_with(".") ? "" : "."));
}

// Of the process, whose threads all have this library.
std::mutex registry_mutex;
std::map<uint64_t, std::weak_ptr<Group>>& registry() {
  static std::map<uint64_t, std::weak_ptr<Group>> groups;
  return groups;
}
// Groups that were aborted, and why, for ranks that come too late; the newest, as ids ascend.
constexpr size_t kRemembered = 64;
std::map<uint64_t, End>& aborted() {
  static std::map<uint64_t, End> ends;
  return ends;
}

std::shared_ptr<Group> find_group(uint64_t id, int32_t size) {
  const std::lock_guard lock(registry_mutex);
  if (const auto found = aborted().find(id); found != aborted().end()) fail(found->second);
  std::erase_if(registry(), [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Group>& known = registry()[id];
  std::shared_ptr<Group> group = known.lock();
  if (group == nullptr) known = group = std::make_shared<Group>(size);
  return group;
}

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<Group> group, const RankGroup& own)
      : group_(std::move(group)), own_(own), rank_(own.rank), limit_(own.limit) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return group_->size; }
  void set_limit(std::chrono::milliseconds limit) override { limit_ = limit; }
  void abort(const std::string& reason, ErrorCode code) override {
    abort_group(own_.id, reason, code);
  }

  bool ended() const override {
    const std::lock_guard lock(group_->mutex);
    return group_->ended;
  }
  void check_end() const override {
    const std::lock_guard lock(group_->mutex);
    if (group_->ended) fail(group_->how);
  }

  void barrier() override { meet(false); }

  // `to_read`: behind it all ranks look at what the others published (Reading).
  void meet(bool to_read) {
    Group& g = *group_;
    std::unique_lock lock(g.mutex);
    if (g.ended) leave(lock);
    const uint64_t mine = g.passed;
    if (++g.arrived == g.size) {
      g.arrived = 0;
      ++g.passed;
      if (to_read) g.reading = g.size;
      g.changed.notify_all();
      return;
    }
    const bool in_time =
        g.changed.wait_for(lock, limit_, [&] { return g.ended || g.passed != mine; });
    if (g.passed != mine) return;
    if (!in_time && !g.ended) {
      g.ended = true;
      g.how.reason = format("rank %d waited %lld ms for %d of %d others", rank_,
                            static_cast<long long>(limit_.count()), g.size - g.arrived, g.size - 1);
      g.changed.notify_all();
    }
    leave(lock);
  }

  void all_reduce(Tensor inout) override {
    Group& g = *group_;
    publish(inout);
    meet(true);
    {
      const Reading reading(g);
      const auto [first, end] = share_of(rank_, inout.size());
      std::vector<float>& sums = g.shares[static_cast<size_t>(rank_)];
      sums.assign(static_cast<size_t>(end - first), 0.f);
      for (const Tensor& x : g.at) {
        each_run(x, first, end, [&, first = first](float* run, int64_t at, int64_t count) {
          float* sum = sums.data() + (at - first);
          for (int64_t i = 0; i < count; ++i) sum[i] += run[i];
        });
      }
    }
    barrier();
    for (int32_t r = 0; r < g.size; ++r) {
      const auto [begin, stop] = share_of(r, inout.size());
      const float* sum = g.shares[static_cast<size_t>(r)].data();
      each_run(inout, begin, stop, [&, start = begin](float* run, int64_t at, int64_t count) {
        std::copy_n(sum + (at - start), count, run);
      });
    }
  }

  void all_gather(Tensor out, const Tensor& part) override {
    Group& g = *group_;
    if (out.rows() != part.rows() || out.cols() != g.size * part.cols())
      throw Error(ErrorCode::kUsage, "all_gather: the parts do not add up to the whole");
    publish(part);
    meet(true);
    {
      const Reading reading(g);
      for (int32_t r = 0; r < g.size; ++r) {
        for (int64_t row = 0; row < part.rows(); ++row) {
          const Tensor& from = g.at[static_cast<size_t>(r)];
          std::memcpy(out.as<float>() + row * out.stride[0] + r * part.cols(),
                      from.as<float>() + row * from.stride[0],
                      static_cast<size_t>(part.cols()) * sizeof(float));
        }
      }
    }
    barrier();  // the parts are their owners' again
  }

  // How many rows each brings is what it publishes: nobody has to be asked first.
  GatheredRows gather_rows(Tensor out, const Tensor& part) override {
    Group& g = *group_;
    publish(part);
    meet(true);
    GatheredRows rows;
    {
      const Reading reading(g);
      for (int32_t r = 0; r < g.size; ++r) {
        const Tensor& from = g.at[static_cast<size_t>(r)];
        if (r == rank_) rows.first = rows.total;
        if (from.rows() > out.rows() - rows.total || (from.rows() > 0 && from.cols() != out.cols()))
          throw Error(ErrorCode::kUsage, "gather_rows: there is no room for the rows of a rank");
        copy_rows(out, rows.total, from);
        rows.total += from.rows();
      }
    }
    barrier();  // the parts are their owners' again
    return rows;
  }

  void scatter_sums(Tensor out, const Tensor& sums, int64_t first) override {
    Group& g = *group_;
    publish(sums);
    meet(true);
    {
      const Reading reading(g);
      for (int64_t i = 0; i < out.rows(); ++i) {
        float* to = out.as<float>() + i * out.stride[0];
        std::fill_n(to, out.cols(), 0.f);
        for (const Tensor& x : g.at) {
          const float* from = x.as<float>() + (first + i) * x.stride[0];
          for (int64_t c = 0; c < out.cols(); ++c) to[c] += from[c];
        }
      }
    }
    barrier();  // what was to be added is its owners' again
  }

  void minimum(std::span<int32_t> values) override {
    static_assert(sizeof(float) == sizeof(int32_t));
    const auto n = static_cast<int64_t>(values.size());
    std::vector<int32_t> all(values.size() * static_cast<size_t>(size()));
    all_gather(Tensor::matrix(all.data(), DType::kF32, 1, size() * n),
               Tensor::matrix(values.data(), DType::kF32, 1, n));
    for (size_t i = 0; i < all.size(); ++i) {
      int32_t& least = values[i % values.size()];
      least = std::min(least, all[i]);
    }
  }

 private:
  // Elements [first, end) of a matrix, counted by rows, in runs that lie in one piece:
  // body(run, first element, elements).
  template <typename Body>
  static void each_run(const Tensor& t, int64_t first, int64_t end, const Body& body) {
    const bool packed = t.stride[0] == t.cols();
    const int64_t cols = packed ? t.size() : t.cols();
    for (int64_t at = first; at < end;) {
      const int64_t count = std::min(end - at, cols - at % cols);
      body(t.as<float>() + at / cols * t.stride[0] + at % cols, at, count);
      at += count;
    }
  }
  // Rows at, at + 1, .. of `out` = `from`.
  static void copy_rows(const Tensor& out, int64_t at, const Tensor& from) {
    for (int64_t i = 0; i < from.rows(); ++i) {
      std::memcpy(out.as<float>() + (at + i) * out.stride[0], from.as<float>() + i * from.stride[0],
                  static_cast<size_t>(from.cols()) * sizeof(float));
    }
  }
  // Ends the collective. What a rank published is its owner's to free afterwards, so nobody may be
  // reading it any more: that takes no longer than the sums of one op.
  [[noreturn]] void leave(std::unique_lock<std::mutex>& lock) {
    group_->changed.wait(lock, [&] { return group_->reading == 0; });
    fail(group_->how);
  }
  std::pair<int64_t, int64_t> share_of(int32_t rank, int64_t total) const {
    return {total * rank / group_->size, total * (rank + 1) / group_->size};
  }
  // The begin of each collective.
  void publish(const Tensor& t) {
    if (ops_++ == own_.fault_at) {
      if (own_.fault_sleep.count() == 0) throw Error(ErrorCode::kDevice, "a fault made by a test");
      std::this_thread::sleep_for(own_.fault_sleep);
    }
    if (t.dtype != DType::kF32) throw Error(ErrorCode::kUsage, "ranks on the CPU share float32");
    const std::lock_guard lock(group_->mutex);
    group_->at[static_cast<size_t>(rank_)] = t;
  }

  std::shared_ptr<Group> group_;
  const RankGroup own_;
  const int32_t rank_;
  std::chrono::milliseconds limit_;
  int64_t ops_ = 0;
};

}  // namespace

uint64_t new_group() {
  static std::atomic<uint64_t> groups{0};
  return ++groups;
}

std::unique_ptr<Comm> join_group(const RankGroup& own) {
  const int32_t rank = own.rank, size = own.size;
  if (size < 1 || rank < 0 || rank >= size)
    throw Error(ErrorCode::kUsage, format("There is no rank %d of %d.", rank, size));
  std::shared_ptr<Group> group = find_group(own.id, size);
  {
    const std::lock_guard lock(group->mutex);
    if (group->size != size || group->joined[static_cast<size_t>(rank)])
      throw Error(ErrorCode::kUsage, format("Rank %d of %d cannot join this group.", rank, size));
    group->joined[static_cast<size_t>(rank)] = true;
  }
  return std::make_unique<ThreadComm>(std::move(group), own);
}

void abort_group(uint64_t id, const std::string& reason, ErrorCode code) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(registry_mutex);
    aborted().emplace(id, End{reason, code});
    if (aborted().size() > kRemembered) aborted().erase(aborted().begin());
    const auto found = registry().find(id);
    if (found != registry().end()) group = found->second.lock();
  }
  if (group != nullptr) group->end({reason, code});
}

}  // namespace inferd::cpu
