// A walk through a trie from one position of the automaton.
//
// As long as the text can be read in one way, in the part where the walk began, only its position
// is followed, which takes a fraction of the time; readings come in where a call, an end or a
// %distinct has to be looked at.
#pragma once
#include <cstdint>
#include <vector>

#include "grammar/compile/automaton.h"
#include "grammar/match/byte_trie.h"
#include "grammar/match/readings.h"

namespace inferd {

class PositionWalk {
 public:
  // The latest level of `readings` is one reading at `position`, and what it calls.
  PositionWalk(const Automaton& automaton, const ByteTrie& trie, Readings& readings,
               int32_t position)
      : automaton_(automaton),
        trie_(trie),
        readings_(readings),
        start_(position),
        deterministic_(part_of(position).deterministic),
        distinct_(part_of(position).kind == PartKind::kDistinct) {}

  // Calls visit(node, readings) for each node of the trie but the root that can be read: `readings`
  // are those behind it, or null where a position is followed, from which there is always a way on.
  // Ends when visit answers false, and leaves the readings where it ended; then answers false.
  template <typename Visit>
  bool run(Visit&& visit) {
    const ByteSet first = readings_.next_bytes();  // the root has many children
    for (uint32_t i = 1; i < trie_.size();) {
      while (!path_.empty() && path_.back().end <= i) leave();
      const ByteTrie::Node& node = trie_.node(i);
      if ((path_.empty() && !first[node.byte]) || !enter(node)) {
        i = node.end;
        continue;
      }
      if (!visit(i, path_.back().position == kReadings ? &readings_ : nullptr)) return false;
      ++i;
    }
    while (!path_.empty()) leave();
    return true;
  }

  // Bytes read to the node that is visited.
  size_t depth() const { return path_.size(); }

 private:
  static constexpr int32_t kReadings = -1;

  // A node that was read: the position behind it, or kReadings.
  struct Step {
    uint32_t end;
    int32_t position;
    uint8_t byte;
  };

  const Part& part_of(int32_t position) const {
    return automaton_
        .parts[static_cast<size_t>(automaton_.positions[static_cast<size_t>(position)].part)];
  }
  bool has_edges_only(int32_t position) const {
    const Position& p = automaton_.positions[static_cast<size_t>(position)];
    return p.calls == p.calls_end;
  }

  bool enter(const ByteTrie::Node& node) {
    const int32_t at = path_.empty() ? start_ : path_.back().position;
    if (!deterministic_ || at == kReadings || !has_edges_only(at)) return enter_by_readings(node);
    const int32_t next = automaton_.step(at, node.byte);
    if (next < 0) return false;
    const auto n = static_cast<size_t>(next);
    const bool few = distinct_ && automaton_.num_texts[n] < Automaton::kMany;
    if (automaton_.positions[n].final || automaton_.endangered[n] || few || !has_edges_only(next))
      return enter_by_readings(node);
    path_.push_back({node.end, next, node.byte});
    return true;
  }

  bool enter_by_readings(const ByteTrie::Node& node) {
    const bool fresh = path_.empty() || path_.back().position != kReadings;
    const size_t before = fresh ? path_.size() : 0;
    for (size_t i = 0; i < before; ++i) readings_.push(path_[i].byte);
    if (readings_.push(node.byte)) {
      path_.push_back({node.end, kReadings, node.byte});
      return true;
    }
    for (size_t i = 0; i < before; ++i) readings_.pop();
    return false;
  }

  void leave() {
    const bool by_readings = path_.back().position == kReadings;
    path_.pop_back();
    if (!by_readings) return;
    readings_.pop();
    // The way to the first node with readings goes, too.
    if (!path_.empty() && path_.back().position != kReadings)
      for (size_t i = 0; i < path_.size(); ++i) readings_.pop();
  }

  const Automaton& automaton_;
  const ByteTrie& trie_;
  Readings& readings_;
  const int32_t start_;
  const bool deterministic_;
  const bool distinct_;
  std::vector<Step> path_;
};

}  // namespace inferd
