// See follow.h.
#include "grammar/compile/follow.h"

#include <algorithm>

namespace inferd {
namespace {

// What can come next at a position before its part ends, given the same of all parts' starts.
struct Next {
  ByteSet bytes;
  bool ends = false;  // the part can end here without a byte
};

class Follow {
 public:
  Follow(const Automaton& automaton, Budget& budget)
      : automaton_(automaton), budget_(budget), first_(automaton.parts.size()) {}

  std::vector<ByteSet> run() {
    repeat([this] {
      bool changed = false;
      for (size_t p = 0; p < first_.size(); ++p)
        changed |= grow(first_[p], next(automaton_.parts[p].start).bytes);
      return changed;
    });
    // For each call, by caller: what comes behind it in the caller, and whether it may be its last.
    struct Behind {
      int32_t caller;
      int32_t part;
      Next next;
    };
    std::vector<Behind> behind;
    for (const Position& p : automaton_.positions) {
      for (int32_t c = p.calls; c < p.calls_end; ++c) {
        const CallEdge& call = automaton_.calls[static_cast<size_t>(c)];
        behind.push_back({p.part, call.part, next(call.ret)});
      }
    }
    std::vector<ByteSet> follow(automaton_.parts.size());
    repeat([&] {
      bool changed = false;
      for (const Behind& b : behind) {
        budget_.tick();
        ByteSet bytes = b.next.bytes;
        if (b.next.ends) bytes |= follow[static_cast<size_t>(b.caller)];
        changed |= grow(follow[static_cast<size_t>(b.part)], bytes);
      }
      return changed;
    });
    return follow;
  }

 private:
  template <typename Round>
  static void repeat(Round&& round) {
    while (round()) {
    }
  }
  static bool grow(ByteSet& set, const ByteSet& by) {
    const ByteSet before = set;
    set |= by;
    return set != before;
  }

  Next next(int32_t start) {
    Next out;
    std::vector<int32_t> open{start};
    for (size_t i = 0; i < open.size(); ++i) {
      const Position& p = automaton_.positions[static_cast<size_t>(open[i])];
      budget_.tick();
      out.ends = out.ends || p.final;
      out.bytes |= edge_bytes(automaton_, open[i]);
      for (int32_t c = p.calls; c < p.calls_end; ++c) {
        const CallEdge& call = automaton_.calls[static_cast<size_t>(c)];
        out.bytes |= first_[static_cast<size_t>(call.part)];
        const bool skipped = automaton_.parts[static_cast<size_t>(call.part)].nullable;
        if (skipped && std::find(open.begin(), open.end(), call.ret) == open.end())
          open.push_back(call.ret);
      }
    }
    return out;
  }

  const Automaton& automaton_;
  Budget& budget_;
  std::vector<ByteSet> first_;
};

}  // namespace

ByteSet edge_bytes(const Automaton& automaton, int32_t position) {
  const Position& p = automaton.positions[static_cast<size_t>(position)];
  ByteSet out;
  for (int32_t e = p.edges; e < p.edges_end; ++e) {
    const ByteEdge& edge = automaton.edges[static_cast<size_t>(e)];
    for (int32_t b = edge.lo; b <= edge.hi; ++b) out.set(static_cast<size_t>(b));
  }
  return out;
}

std::vector<ByteSet> follow_bytes(const Automaton& automaton, Budget& budget) {
  return Follow(automaton, budget).run();
}

}  // namespace inferd
