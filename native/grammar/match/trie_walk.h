// Walks the strings of a trie that readings can read.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/match/byte_trie.h"
#include "grammar/match/readings.h"

namespace inferd {

// Calls visit(ids) for each string of `trie` but "" that can be read, with `readings` behind it;
// the walk ends when visit answers false, and leaves the readings where it ended.
template <typename Visit>
void walk(const ByteTrie& trie, Readings& readings, Visit&& visit) {
  std::vector<uint32_t> ends;                   // of the nodes above that were read
  const ByteSet first = readings.next_bytes();  // the root has many children
  for (uint32_t i = 1; i < trie.size();) {
    while (!ends.empty() && ends.back() <= i) {
      ends.pop_back();
      readings.pop();
    }
    const ByteTrie::Node& node = trie.node(i);
    if ((ends.empty() && !first[node.byte]) || !readings.push(node.byte)) {
      i = node.end;
      continue;
    }
    ends.push_back(node.end);
    const std::span<const int32_t> ids = trie.ids(i);
    if (!ids.empty() && !visit(ids)) return;
    ++i;
  }
  for (size_t n = ends.size(); n > 0; --n) readings.pop();
}

}  // namespace inferd
