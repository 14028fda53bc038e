// See rank_member.h.
#include "cuda/ranks/rank_member.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/error.h"

namespace inferd::cuda {

RankMember::RankMember(const RankGroup& group, std::unique_ptr<Comm> host)
    : own_(group), host_(std::move(host)) {
  if (group.size > kMostRanks) {
    throw Error(ErrorCode::kUnsupported,
                format("GPUs compute a model in at most %d ranks.", kMostRanks));
  }
}

void RankMember::await_all(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                           const std::function<bool()>& all) {
  constexpr std::chrono::milliseconds kLeast{60'000};
  const auto until = std::chrono::steady_clock::now() + std::max(own_.limit, kLeast);
  while (!all()) {
    // Seen within this when the group ends meanwhile.
    constexpr std::chrono::milliseconds kLook{50};
    changed.wait_for(lock, kLook, all);
    if (all()) break;
    host_->check_end();
    if (std::chrono::steady_clock::now() > until) {
      const std::string reason = format("rank %d waited for others to come", own_.rank);
      host_->abort(reason);
      host_->check_end();
    }
  }
}

void RankMember::count_op() {
  if (ops_++ != own_.fault_at) return;
  if (own_.fault_sleep.count() == 0) throw Error(ErrorCode::kDevice, "a fault made by a test");
  std::this_thread::sleep_for(own_.fault_sleep);
}

}  // namespace inferd::cuda
