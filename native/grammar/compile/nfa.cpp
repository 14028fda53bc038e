// See nfa.h.
#include "grammar/compile/nfa.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <unordered_map>

namespace inferd {
namespace {

using Set = std::vector<int32_t>;

struct SetHash {
  size_t operator()(const Set& set) const {
    uint64_t h = 0x9E3779B97F4A7C15;
    for (const int32_t v : set) h = (h ^ static_cast<uint32_t>(v)) * 0xFF51AFD7ED558CCD + (h >> 29);
    return h;
  }
};

// Edges by state, and closures over empty edges.
class Graph {
 public:
  Graph(const Nfa& nfa, Budget& budget)
      : nfa_(nfa), budget_(budget), first_(static_cast<size_t>(nfa.num_states) + 1) {
    for (const Nfa::Edge& e : nfa.edges) ++first_[static_cast<size_t>(e.from) + 1];
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    edges_.resize(nfa.edges.size());
    std::vector<int32_t> at(first_.begin(), first_.end() - 1);
    for (const Nfa::Edge& e : nfa.edges)
      edges_[static_cast<size_t>(at[static_cast<size_t>(e.from)]++)] = e;
    seen_.resize(static_cast<size_t>(nfa.num_states), -1);
  }

  // The states that `from` leads to over nothing and that matter: with other edges, or the end.
  Set closure(const Set& from) {
    ++round_;
    Set out, open = from;
    for (const int32_t s : from) seen_[static_cast<size_t>(s)] = round_;
    while (!open.empty()) {
      const int32_t s = open.back();
      open.pop_back();
      budget_.tick();
      bool matters = s == nfa_.end;
      for (const Nfa::Edge& e : edges(s)) {
        if (e.call != Nfa::kEmpty) {
          matters = true;
        } else if (seen_[static_cast<size_t>(e.to)] != round_) {
          seen_[static_cast<size_t>(e.to)] = round_;
          open.push_back(e.to);
        }
      }
      if (matters) out.push_back(s);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  std::span<const Nfa::Edge> edges(int32_t state) const {
    const auto s = static_cast<size_t>(state);
    return {edges_.data() + first_[s], edges_.data() + first_[s + 1]};
  }

 private:
  const Nfa& nfa_;
  Budget& budget_;
  std::vector<int32_t> first_;
  std::vector<Nfa::Edge> edges_;
  std::vector<int32_t> seen_;
  int32_t round_ = 0;
};

class Determinizer {
 public:
  Determinizer(const Nfa& nfa, Budget& budget) : nfa_(nfa), budget_(budget), graph_(nfa, budget) {}

  // False when the sets outgrow the states by far.
  bool run() {
    const size_t most = 4 * static_cast<size_t>(nfa_.num_states) + 64;
    id_of(graph_.closure({nfa_.start}));
    for (size_t i = 0; i < sets_.size(); ++i) {
      if (sets_.size() > most) return false;
      expand(i);
    }
    return true;
  }

  LocalPart take() { return std::move(out_); }

 private:
  int32_t id_of(Set set) {
    const auto [at, fresh] =
        ids_.try_emplace(std::move(set), static_cast<int32_t>(out_.states.size()));
    if (fresh) {
      budget_.states(1);
      out_.states.emplace_back();
      sets_.push_back(&at->first);
      out_.states.back().final = std::binary_search(at->first.begin(), at->first.end(), nfa_.end);
    }
    return at->second;
  }

  void expand(size_t i) {
    // Where ranges of bytes start: between two such bytes, all behave alike.
    std::array<bool, 257> starts{};
    std::map<int32_t, Set> calls;
    std::vector<Nfa::Edge> ranges;
    for (const int32_t s : *sets_[i]) {
      for (const Nfa::Edge& e : graph_.edges(s)) {
        budget_.tick();
        if (e.call == Nfa::kBytes) {
          ranges.push_back(e);
          starts[e.lo] = true;
          starts[static_cast<size_t>(e.hi) + 1] = true;
        } else if (e.call >= 0) {
          calls[e.call].push_back(e.to);
        }
      }
    }
    for (auto& [part, targets] : calls) {
      const int32_t ret = target_of(targets);
      out_.states[i].calls.push_back({part, ret});
    }
    if (!ranges.empty()) expand_bytes(i, starts, ranges);
  }

  void expand_bytes(size_t i, const std::array<bool, 257>& starts,
                    const std::vector<Nfa::Edge>& ranges) {
    std::array<Set, 256> targets;
    for (const Nfa::Edge& e : ranges) {
      for (int32_t b = e.lo; b <= e.hi; ++b) {
        if (starts[static_cast<size_t>(b)]) targets[static_cast<size_t>(b)].push_back(e.to);
      }
    }
    std::vector<ByteEdge> edges;
    int32_t target = -1;
    for (int32_t b = 0; b < 256; ++b) {
      const bool starts_here = starts[static_cast<size_t>(b)];
      Set& set = targets[static_cast<size_t>(b)];
      if (starts_here) target = set.empty() ? -1 : target_of(set);
      if (target < 0) continue;
      const auto byte = static_cast<uint8_t>(b);
      if (!edges.empty() && edges.back().target == target && edges.back().hi + 1 == b) {
        edges.back().hi = byte;
      } else {
        edges.push_back({byte, byte, target});
      }
    }
    out_.states[i].edges = std::move(edges);
  }

  int32_t target_of(Set& states) {
    std::sort(states.begin(), states.end());
    states.erase(std::unique(states.begin(), states.end()), states.end());
    return id_of(graph_.closure(states));
  }

  const Nfa& nfa_;
  Budget& budget_;
  Graph graph_;
  LocalPart out_;
  std::unordered_map<Set, int32_t, SetHash> ids_;
  std::vector<const Set*> sets_;  // keys of ids_, which stay where they are
};

// Positions are the states that something leads to; each has the edges of its closure.
LocalPart without_empty_edges(const Nfa& nfa, Budget& budget) {
  Graph graph(nfa, budget);
  std::vector<int32_t> id(static_cast<size_t>(nfa.num_states), -1);
  std::vector<int32_t> order;
  const auto id_of = [&](int32_t state) {
    int32_t& n = id[static_cast<size_t>(state)];
    if (n < 0) {
      n = static_cast<int32_t>(order.size());
      order.push_back(state);
    }
    return n;
  };
  LocalPart out;
  out.deterministic = false;
  id_of(nfa.start);
  for (size_t i = 0; i < order.size(); ++i) {
    LocalPart::State state;
    for (const int32_t s : graph.closure({order[i]})) {
      state.final = state.final || s == nfa.end;
      for (const Nfa::Edge& e : graph.edges(s)) {
        if (e.call == Nfa::kEmpty) continue;
        budget.states(1);  // an edge may be much more than a state here
        if (e.call == Nfa::kBytes) state.edges.push_back({e.lo, e.hi, id_of(e.to)});
        if (e.call >= 0) state.calls.push_back({e.call, id_of(e.to)});
      }
    }
    std::sort(state.edges.begin(), state.edges.end(),
              [](const ByteEdge& a, const ByteEdge& b) { return a.lo < b.lo; });
    out.states.push_back(std::move(state));
  }
  return out;
}

}  // namespace

LocalPart determinize(const Nfa& nfa, Budget& budget) {
  Determinizer determinizer(nfa, budget);
  return determinizer.run() ? determinizer.take() : without_empty_edges(nfa, budget);
}

}  // namespace inferd
