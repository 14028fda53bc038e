// See link.h.
#include "grammar/compile/link.h"

#include <algorithm>
#include <unordered_map>

namespace inferd {
namespace {

// All states of all parts under one number, with who needs whom.
class Linker {
 public:
  Linker(const Syntax& syntax, std::vector<LoweredPart> parts, Budget& budget)
      : syntax_(syntax), parts_(std::move(parts)), budget_(budget) {
    for (size_t p = 0; p < parts_.size(); ++p) {
      first_.push_back(static_cast<int32_t>(states_.size()));
      for (const LocalPart::State& s : parts_[p].body.states) {
        states_.push_back(&s);
        part_of_.push_back(static_cast<int32_t>(p));
      }
    }
  }

  Automaton run() {
    find_users();
    // A position is useful when its part's end can be reached from it.
    const std::vector<bool> useful = reach_end([](const CallEdge&) { return true; }, true);
    if (!useful[0]) throw Error(ErrorCode::kUsage, "The grammar matches no text.");
    const std::vector<bool> nullable = reach_end([](const CallEdge&) { return true; }, false);
    number_positions(useful);
    write_positions(useful);
    write_parts(nullable);
    find_open();
    count_texts();
    find_endangered();
    return std::move(out_);
  }

 private:
  const LocalPart::State& state(int32_t s) const { return *states_[static_cast<size_t>(s)]; }
  int32_t first_of_part(int32_t part) const { return first_[static_cast<size_t>(part)]; }
  int32_t global(int32_t s, int32_t local) const {
    return first_of_part(part_of_[static_cast<size_t>(s)]) + local;
  }

  // For each state: which states have an edge to it; for each part: which states call it.
  void find_users() {
    sources_.resize(states_.size());
    callers_.resize(parts_.size());
    for (int32_t s = 0; s < static_cast<int32_t>(states_.size()); ++s) {
      budget_.tick();
      for (const ByteEdge& e : state(s).edges)
        sources_[static_cast<size_t>(global(s, e.target))].push_back(s);
      for (const CallEdge& c : state(s).calls) {
        sources_[static_cast<size_t>(global(s, c.ret))].push_back(s);
        callers_[static_cast<size_t>(c.part)].push_back(s);
      }
    }
  }

  // From which states the end of the part can be reached; over bytes only where `bytes`.
  template <typename Allowed>
  std::vector<bool> reach_end(Allowed&& allowed, bool bytes) {
    std::vector<bool> reached(states_.size());
    std::vector<int32_t> open;
    const auto reach = [&](int32_t s) {
      if (reached[static_cast<size_t>(s)]) return;
      reached[static_cast<size_t>(s)] = true;
      open.push_back(s);
    };
    const auto try_state = [&](int32_t s) {
      if (reached[static_cast<size_t>(s)]) return;
      budget_.tick();
      bool can = state(s).final;
      if (bytes) {
        for (const ByteEdge& e : state(s).edges)
          can = can || reached[static_cast<size_t>(global(s, e.target))];
      }
      for (const CallEdge& c : state(s).calls) {
        can = can || (allowed(c) && reached[static_cast<size_t>(first_of_part(c.part))] &&
                      reached[static_cast<size_t>(global(s, c.ret))]);
      }
      if (can) reach(s);
    };
    for (int32_t s = 0; s < static_cast<int32_t>(states_.size()); ++s)
      if (state(s).final) reach(s);
    while (!open.empty()) {
      const int32_t s = open.back();
      open.pop_back();
      for (const int32_t user : sources_[static_cast<size_t>(s)]) try_state(user);
      const int32_t part = part_of_[static_cast<size_t>(s)];
      if (s == first_of_part(part))
        for (const int32_t user : callers_[static_cast<size_t>(part)]) try_state(user);
    }
    return reached;
  }

  bool useful_call(const std::vector<bool>& useful, int32_t s, const CallEdge& c) const {
    return useful[static_cast<size_t>(first_of_part(c.part))] &&
           useful[static_cast<size_t>(global(s, c.ret))];
  }

  // Numbers what is useful and reached from the root, part by part.
  void number_positions(const std::vector<bool>& useful) {
    std::vector<bool> seen(states_.size());
    std::vector<int32_t> open{0};
    seen[0] = true;
    const auto visit = [&](int32_t s) {
      if (!useful[static_cast<size_t>(s)] || seen[static_cast<size_t>(s)]) return;
      seen[static_cast<size_t>(s)] = true;
      open.push_back(s);
    };
    while (!open.empty()) {
      const int32_t s = open.back();
      open.pop_back();
      budget_.tick();
      for (const ByteEdge& e : state(s).edges) visit(global(s, e.target));
      for (const CallEdge& c : state(s).calls) {
        if (!useful_call(useful, s, c)) continue;
        visit(first_of_part(c.part));
        visit(global(s, c.ret));
      }
    }
    number_.resize(states_.size(), -1);
    part_number_.resize(parts_.size(), -1);
    int32_t next = 0, next_part = 0;
    for (size_t s = 0; s < states_.size(); ++s) {
      if (!seen[s]) continue;
      number_[s] = next++;
      int32_t& part = part_number_[static_cast<size_t>(part_of_[s])];
      if (part < 0) part = next_part++;
    }
  }

  void write_positions(const std::vector<bool>& useful) {
    for (int32_t s = 0; s < static_cast<int32_t>(states_.size()); ++s) {
      if (number_[static_cast<size_t>(s)] < 0) continue;
      Position p;
      p.final = state(s).final;
      p.part = part_number_[static_cast<size_t>(part_of_[static_cast<size_t>(s)])];
      p.edges = static_cast<int32_t>(out_.edges.size());
      for (const ByteEdge& e : state(s).edges) {
        const int32_t target = number_[static_cast<size_t>(global(s, e.target))];
        if (target >= 0) out_.edges.push_back({e.lo, e.hi, target});
      }
      p.edges_end = static_cast<int32_t>(out_.edges.size());
      p.calls = static_cast<int32_t>(out_.calls.size());
      for (const CallEdge& c : state(s).calls) {
        if (!useful_call(useful, s, c)) continue;
        out_.calls.push_back({part_number_[static_cast<size_t>(c.part)],
                              number_[static_cast<size_t>(global(s, c.ret))]});
      }
      p.calls_end = static_cast<int32_t>(out_.calls.size());
      out_.positions.push_back(p);
    }
  }

  void write_parts(const std::vector<bool>& nullable) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (part_number_[i] < 0) continue;
      const LoweredPart& from = parts_[i];
      Part part;
      part.kind = from.kind;
      part.start = number_[static_cast<size_t>(first_[i])];
      part.nullable = nullable[static_cast<size_t>(first_[i])];
      part.deterministic = from.body.deterministic;
      part.closed = is_closed(from.body);
      if (part.kind == PartKind::kDistinct) {
        if (part.nullable)
          throw Error(ErrorCode::kUsage, "A %distinct of the grammar can match the empty text.");
        part.taken = static_cast<int32_t>(out_.taken.size());
        std::vector<std::string> taken = syntax_.literal_lists[static_cast<size_t>(from.taken)];
        std::sort(taken.begin(), taken.end());
        taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
        out_.taken.push_back(std::move(taken));
      }
      out_.parts.push_back(part);
    }
    out_.root = 0;
  }

  // A part is open when it calls a %distinct, or an open part that starts no scope.
  void find_open() {
    std::vector<std::vector<int32_t>> callers(out_.parts.size());
    for (const Position& p : out_.positions) {
      for (int32_t c = p.calls; c < p.calls_end; ++c)
        callers[static_cast<size_t>(out_.calls[static_cast<size_t>(c)].part)].push_back(p.part);
    }
    std::vector<int32_t> open;
    for (size_t i = 0; i < out_.parts.size(); ++i) {
      if (out_.parts[i].kind != PartKind::kDistinct) continue;
      out_.parts[i].open = true;
      open.push_back(static_cast<int32_t>(i));
    }
    while (!open.empty()) {
      const int32_t part = open.back();
      open.pop_back();
      for (const int32_t caller : callers[static_cast<size_t>(part)]) {
        Part& c = out_.parts[static_cast<size_t>(caller)];
        if (c.open || c.kind == PartKind::kScope) continue;
        c.open = true;
        open.push_back(caller);
      }
    }
  }

  void count_texts() {
    out_.num_texts.assign(out_.positions.size(), 0);
    status_.assign(out_.positions.size(), 0);
    std::vector<std::vector<int32_t>> by_part(out_.parts.size());
    for (size_t i = 0; i < out_.positions.size(); ++i) {
      const auto part = static_cast<size_t>(out_.positions[i].part);
      if (out_.parts[part].kind == PartKind::kDistinct)
        by_part[part].push_back(static_cast<int32_t>(i));
    }
    for (const std::vector<int32_t>& positions : by_part) count_texts_of(positions);
  }

  // Depth first: a position met again while it is open is on a circle. As all positions lead to
  // the end, what leads to a circle has endlessly many texts.
  void count_texts_of(const std::vector<int32_t>& positions) {
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t>& status = status_;
    struct Visit {
      int32_t position;
      int32_t edge;
    };
    for (const int32_t first : positions) {
      if (status[static_cast<size_t>(first)] != kNew) continue;
      std::vector<Visit> stack{{first, out_.positions[static_cast<size_t>(first)].edges}};
      status[static_cast<size_t>(first)] = kOpen;
      while (!stack.empty()) {
        Visit& top = stack.back();
        budget_.tick();
        const auto at = static_cast<size_t>(top.position);
        const Position& p = out_.positions[at];
        uint64_t& sum = sums_[top.position];
        if (top.edge == p.edges) sum = p.final ? 1 : 0;
        if (top.edge == p.edges_end) {
          out_.num_texts[at] = static_cast<uint32_t>(sum);
          status[at] = kDone;
          stack.pop_back();
          continue;
        }
        const ByteEdge& e = out_.edges[static_cast<size_t>(top.edge)];
        const auto target = static_cast<size_t>(e.target);
        if (status[target] == kNew) {
          status[target] = kOpen;
          stack.push_back({e.target, out_.positions[target].edges});
          continue;
        }
        const uint64_t texts =
            status[target] == kOpen ? uint64_t{Automaton::kMany} : out_.num_texts[target];
        sum = std::min<uint64_t>(sum + texts * static_cast<uint64_t>(e.hi - e.lo + 1),
                                 Automaton::kMany);
        ++top.edge;
      }
    }
    sums_.clear();
  }

  // Which positions cannot reach the end of their part without a %distinct of few texts.
  void find_endangered() {
    const std::vector<bool> safe = reach_end(
        [this](const CallEdge& c) {
          const int32_t part = part_number_[static_cast<size_t>(c.part)];
          if (part < 0) return false;
          const Part& p = out_.parts[static_cast<size_t>(part)];
          return p.kind != PartKind::kDistinct ||
                 out_.num_texts[static_cast<size_t>(p.start)] == Automaton::kMany;
        },
        true);
    out_.endangered.resize(out_.positions.size());
    for (size_t s = 0; s < states_.size(); ++s)
      if (number_[s] >= 0) out_.endangered[static_cast<size_t>(number_[s])] = !safe[s];
  }

  const Syntax& syntax_;
  const std::vector<LoweredPart> parts_;
  Budget& budget_;
  std::vector<const LocalPart::State*> states_;
  std::vector<int32_t> part_of_;
  std::vector<int32_t> first_;
  std::vector<std::vector<int32_t>> sources_;
  std::vector<std::vector<int32_t>> callers_;
  std::vector<int32_t> number_;
  std::vector<int32_t> part_number_;
  std::vector<uint8_t> status_;
  std::unordered_map<int32_t, uint64_t> sums_;
  Automaton out_;
};

}  // namespace

Automaton link(const Syntax& syntax, std::vector<LoweredPart> parts, Budget& budget) {
  return Linker(syntax, std::move(parts), budget).run();
}

}  // namespace inferd
