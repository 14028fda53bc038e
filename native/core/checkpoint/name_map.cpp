// See name_map.h.
#include "core/checkpoint/name_map.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace inferd {
namespace {

constexpr std::string_view kHole = "{}";

// What each "{}", or the "*", of `pattern` stands for in `name`; nothing when it does not fit.
std::optional<std::vector<std::string_view>> match(std::string_view pattern,
                                                   std::string_view name) {
  std::vector<std::string_view> found;
  while (!pattern.empty()) {
    if (pattern == "*") {
      found.push_back(name);
      return found;
    }
    if (pattern.starts_with(kHole)) {
      const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
      if (digits == 0) return {};
      found.push_back(name.substr(0, digits));
      pattern.remove_prefix(kHole.size());
      name.remove_prefix(digits);
    } else {
      if (name.empty() || name.front() != pattern.front()) return {};
      pattern.remove_prefix(1);
      name.remove_prefix(1);
    }
  }
  return name.empty() ? std::optional(found) : std::nullopt;
}

std::string filled(std::string pattern, const std::vector<std::string_view>& with) {
  if (pattern.ends_with('*'))
    return pattern.substr(0, pattern.size() - 1).append(with.empty() ? "" : with.back());
  size_t at = 0;
  for (const std::string_view part : with) {
    at = pattern.find(kHole, at);
    if (at == std::string::npos) break;
    pattern.replace(at, kHole.size(), part);
    at += part.size();
  }
  return pattern;
}

}  // namespace

std::string stored_name(const NameMap& map, const std::string& canonical) {
  for (const NameRule& rule : map) {
    if (const auto found = match(rule.canonical, canonical)) return filled(rule.stored, *found);
  }
  return canonical;
}

}  // namespace inferd
