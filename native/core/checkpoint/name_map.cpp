// See name_map.h.
#include "core/checkpoint/name_map.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace inferd {
namespace {

// What "{}" or "*" of `pattern` stands for in `name`, "" in a pattern without; nothing when the
// pattern does not fit.
std::optional<std::string_view> match(std::string_view pattern, std::string_view name) {
  if (pattern.ends_with('*')) {
    pattern.remove_suffix(1);
    if (!name.starts_with(pattern)) return {};
    return name.substr(pattern.size());
  }
  const size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos)
    return name == pattern ? std::optional(std::string_view()) : std::nullopt;
  const std::string_view before = pattern.substr(0, hole), after = pattern.substr(hole + 2);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after))
    return {};
  const std::string_view number =
      name.substr(before.size(), name.size() - before.size() - after.size());
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::all_of(number.begin(), number.end(), digit) ? std::optional(number) : std::nullopt;
}

std::string filled(const std::string& pattern, std::string_view with) {
  if (pattern.ends_with('*')) return pattern.substr(0, pattern.size() - 1).append(with);
  const size_t hole = pattern.find("{}");
  return hole == std::string::npos ? pattern : std::string(pattern).replace(hole, 2, with);
}

}  // namespace

std::string stored_name(const NameMap& map, const std::string& canonical) {
  for (const NameRule& rule : map) {
    if (const auto found = match(rule.canonical, canonical)) return filled(rule.stored, *found);
  }
  return canonical;
}

}  // namespace inferd
