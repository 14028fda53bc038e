// See byte_trie.h.
#include "grammar/match/byte_trie.h"

#include <algorithm>
#include <string_view>

namespace inferd {

ByteTrie::ByteTrie(std::vector<std::pair<std::string, int32_t>> entries) {
  // std::string orders by unsigned bytes.
  std::sort(entries.begin(), entries.end());
  ids_.reserve(entries.size());
  std::vector<uint32_t> path{0};  // nodes of the last string, the root first
  nodes_.push_back({0, 0, 0, 0});
  std::string_view last;
  const auto close = [&](size_t depth) {
    while (path.size() > depth + 1) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
  };
  for (const auto& [text, id] : entries) {
    const auto common = static_cast<size_t>(
        std::mismatch(last.begin(), last.end(), text.begin(), text.end()).first - last.begin());
    close(common);
    for (size_t d = common; d < text.size(); ++d) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint32_t>(ids_.size()), static_cast<uint8_t>(text[d]), 0});
    }
    for (size_t d = 0; d < path.size(); ++d) {
      uint8_t& height = nodes_[path[d]].height;
      height = std::max(height, static_cast<uint8_t>(std::min<size_t>(text.size() - d, 255)));
    }
    ids_.push_back(id);
    last = text;
  }
  close(0);
  nodes_[0].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<uint32_t>(ids_.size()), 0, 0});
}

int64_t ByteTrie::find(std::string_view text, uint32_t from) const {
  uint32_t at = from;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t child = at + 1;
    while (child < nodes_[at].end && nodes_[child].byte != byte) child = nodes_[child].end;
    if (child >= nodes_[at].end) return -1;
    at = child;
  }
  return at;
}

}  // namespace inferd
