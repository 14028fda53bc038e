// A trie over byte strings in one array, in the order in which a walk meets its nodes: a node, then
// all below it. Each string has a list of numbers.
//
//   node 0 (root) | node 1 "a" | node 2 "ab" | node 3 "b" | end
//            end:4          3            3           4
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace inferd {

class ByteTrie {
 public:
  struct Node {
    uint32_t end;  // first node that is not below this one
    uint32_t ids;  // of this node: ids from here to those of the next node
    uint8_t byte;
    uint8_t height;  // bytes of the longest string below; 255 for more
  };

  ByteTrie() : ByteTrie(std::vector<std::pair<std::string, int32_t>>()) {}
  explicit ByteTrie(std::vector<std::pair<std::string, int32_t>> entries);

  // Without the one at the end that only closes ranges.
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()) - 1; }
  const Node& node(uint32_t i) const { return nodes_[i]; }
  // Numbers of the string that ends at this node.
  std::span<const int32_t> ids(uint32_t i) const {
    return {ids_.data() + nodes_[i].ids, ids_.data() + nodes_[i + 1].ids};
  }
  // Numbers of this node and all below it.
  std::span<const int32_t> ids_below(uint32_t i) const {
    return {ids_.data() + nodes_[i].ids, ids_.data() + nodes_[nodes_[i].end].ids};
  }
  // The node of a string, or -1.
  int64_t find(std::string_view text, uint32_t from = 0) const;
  int64_t bytes() const {
    return static_cast<int64_t>(nodes_.capacity() * sizeof(Node) +
                                ids_.capacity() * sizeof(int32_t));
  }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> ids_;
};

}  // namespace inferd
