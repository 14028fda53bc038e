// What the ranks of a group, which are threads of this process, find each other by.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "core/comm.h"

namespace inferd::cuda {

// That of own.id, made by its first rank as Group(own.size); it lives as long as a rank holds it.
template <typename Group>
std::shared_ptr<Group> find_group(const RankGroup& own) {
  static std::mutex mutex;
  static std::map<uint64_t, std::weak_ptr<Group>> groups;
  const std::lock_guard lock(mutex);
  std::erase_if(groups, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Group>& known = groups[own.id];
  std::shared_ptr<Group> group = known.lock();
  if (group == nullptr) known = group = std::make_shared<Group>(own.size);
  return group;
}

}  // namespace inferd::cuda
