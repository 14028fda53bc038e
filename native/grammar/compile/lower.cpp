// See lower.h.
#include "grammar/compile/lower.h"

#include <algorithm>
#include <map>

namespace inferd {
namespace {

// Copies inside copies: a part of a %distinct copies all rules that it uses.
constexpr int32_t kMaxDepth = 1500;

class Lowering {
 public:
  Lowering(const Syntax& syntax, const RulePlan& plan, Budget& budget)
      : syntax_(syntax), plan_(plan), budget_(budget), part_of_rule_(syntax.rules.size(), -1) {}

  std::vector<LoweredPart> run() {
    call_rule(syntax_.root);
    // Parts name others, which come to the end of the list.
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const Waiting w = waiting_[i];
      LocalPart body = build({w.node, w.kind == PartKind::kDistinct, w.rule});
      parts_[static_cast<size_t>(w.part)].body = std::move(body);
    }
    return std::move(parts_);
  }

 private:
  struct Waiting {
    int32_t part;
    int32_t node;
    int32_t rule;  // or -1
    PartKind kind;
  };
  struct Body {
    int32_t node;
    bool copy_all;  // of a %distinct: calls nothing
    int32_t rule;
  };
  // The elements [first, last) of a sequence, and a text behind them.
  struct Unit {
    int32_t sequence;
    int32_t first;
    int32_t last;
    std::string closing;
  };
  // What is being lowered into.
  struct Target {
    Nfa nfa;
    bool copy_all = false;
    bool units = true;
    int32_t depth = 0;
  };

  int32_t add_part(PartKind kind) {
    budget_.tick();
    parts_.emplace_back().kind = kind;
    return static_cast<int32_t>(parts_.size()) - 1;
  }

  int32_t call_rule(int32_t rule) {
    int32_t& part = part_of_rule_[static_cast<size_t>(rule)];
    if (part < 0) {
      part = add_part(PartKind::kPlain);
      waiting_.push_back(
          {part, syntax_.rules[static_cast<size_t>(rule)].node, rule, PartKind::kPlain});
    }
    return part;
  }

  // The part of a %scope or %distinct.
  int32_t call_node(int32_t index) {
    const auto [at, fresh] = part_of_node_.try_emplace(index, -1);
    if (fresh) {
      const Node& node = syntax_.nodes[static_cast<size_t>(index)];
      const PartKind kind = node.kind == NodeKind::kScope ? PartKind::kScope : PartKind::kDistinct;
      at->second = add_part(kind);
      if (kind == PartKind::kDistinct) parts_.back().taken = node.b;
      waiting_.push_back({at->second, node.a, -1, kind});
    }
    return at->second;
  }

  int32_t new_state(Target& t) {
    budget_.states(1);
    return t.nfa.num_states++;
  }

  LocalPart build(const Body& body) {
    Target t;
    t.copy_all = body.copy_all;
    t.units = !body.copy_all;
    t.nfa.start = new_state(t);
    t.nfa.end = node(t, body.node, t.nfa.start);
    LocalPart out = determinize(t.nfa, budget_);
    if (body.copy_all && !out.deterministic) {
      throw Error(ErrorCode::kUnsupported,
                  "The texts of a %distinct of the grammar need too many states.");
    }
    return out;
  }

  LocalPart build_unit(const Unit& unit) {
    Target t;
    t.units = false;
    t.nfa.start = new_state(t);
    int32_t at = t.nfa.start;
    for (int32_t i = unit.first; i < unit.last; ++i)
      at = node(t, syntax_.children[static_cast<size_t>(unit.sequence + i)], at);
    t.nfa.end = literal(t, unit.closing, at);
    return determinize(t.nfa, budget_);
  }

  // Adds what the node matches from state `from`, which nothing leads to afterwards; returns the
  // state behind it.
  int32_t node(Target& t, int32_t index, int32_t from) {
    budget_.tick();
    if (++t.depth > kMaxDepth) {
      throw Error(ErrorCode::kUnsupported,
                  format("The grammar's rules are nested deeper than the limit of %d.", kMaxDepth));
    }
    const int32_t to = node_body(t, index, from);
    --t.depth;
    return to;
  }

  int32_t node_body(Target& t, int32_t index, int32_t from) {
    const Node& n = syntax_.nodes[static_cast<size_t>(index)];
    switch (n.kind) {
      case NodeKind::kLiteral:
        return literal(t, syntax_.texts[static_cast<size_t>(n.a)], from);
      case NodeKind::kClass:
        return char_class(t, syntax_.classes[static_cast<size_t>(n.a)], from);
      case NodeKind::kSequence:
        return sequence(t, n, from);
      case NodeKind::kChoice: {
        const int32_t to = new_state(t);
        for (int32_t i = 0; i < n.b; ++i)
          t.nfa.add_empty(node(t, syntax_.children[static_cast<size_t>(n.a + i)], from), to);
        return to;
      }
      case NodeKind::kRepeat:
        return repeat(t, n, from);
      case NodeKind::kRule:
        return rule(t, n.a, from);
      case NodeKind::kScope:
      case NodeKind::kDistinct:
        if (t.copy_all) {
          throw Error(ErrorCode::kUsage,
                      "A %distinct of the grammar contains another %scope or %distinct.");
        }
        return call(t, call_node(index), from);
    }
    return from;
  }

  int32_t call(Target& t, int32_t part, int32_t from) {
    const int32_t to = new_state(t);
    t.nfa.edges.push_back({from, to, part});
    return to;
  }

  int32_t rule(Target& t, int32_t rule, int32_t from) {
    const auto r = static_cast<size_t>(rule);
    if (!plan_.called[r]) return node(t, syntax_.rules[r].node, from);
    if (!t.copy_all) return call(t, call_rule(rule), from);
    if (plan_.recursive[r]) {
      throw Error(ErrorCode::kUsage,
                  format("A %%distinct of the grammar contains the rule \"%s\", which contains "
                         "itself.",
                         syntax_.rules[r].name.c_str()));
    }
    return node(t, syntax_.rules[r].node, from);
  }

  int32_t literal(Target& t, const std::string& text, int32_t from) {
    for (const char c : text) {
      const int32_t to = new_state(t);
      const auto byte = static_cast<uint8_t>(c);
      t.nfa.edges.push_back({from, to, Nfa::kBytes, byte, byte});
      from = to;
    }
    return from;
  }

  // Sequences that end alike share their last states: those where 1, 2 or 3 bytes of any kind
  // complete the character.
  int32_t char_class(Target& t, const CodePoints& points, int32_t from) {
    const int32_t to = new_state(t);
    std::map<std::vector<std::pair<uint8_t, uint8_t>>, int32_t> states{{{}, to}};
    for (const Utf8Range& range : utf8_ranges(points)) {
      std::vector<std::pair<uint8_t, uint8_t>> rest;  // last byte first
      int32_t behind = to;
      for (int32_t i = range.length - 1; i >= 0; --i) {
        const auto b = static_cast<size_t>(i);
        int32_t here = from;
        bool fresh = true;
        if (i > 0) {
          rest.emplace_back(range.lo[b], range.hi[b]);
          const auto [at, added] = states.try_emplace(rest, -1);
          if (added) at->second = new_state(t);
          here = at->second;
          fresh = added;
        }
        if (fresh) t.nfa.edges.push_back({here, behind, Nfa::kBytes, range.lo[b], range.hi[b]});
        behind = here;
      }
    }
    return to;
  }

  int32_t repeat(Target& t, const Node& n, int32_t from) {
    for (int32_t i = 0; i < n.min; ++i) {
      budget_.states(1);  // also when a copy adds none
      from = node(t, n.a, from);
    }
    if (n.max == Node::kUnbounded) {
      const int32_t loop = new_state(t);
      t.nfa.add_empty(from, loop);
      t.nfa.add_empty(node(t, n.a, loop), loop);
      return loop;
    }
    if (n.max == n.min) return from;
    const int32_t to = new_state(t);
    for (int32_t i = n.min; i < n.max; ++i) {
      budget_.states(1);
      t.nfa.add_empty(from, to);
      from = node(t, n.a, from);
    }
    t.nfa.add_empty(from, to);
    return to;
  }

  int32_t sequence(Target& t, const Node& n, int32_t from) {
    std::string rest;  // of a literal whose first character a unit took
    bool has_rest = false;
    for (int32_t i = 0; i < n.b; ++i) {
      const int32_t child = syntax_.children[static_cast<size_t>(n.a + i)];
      if (has_rest) {
        from = literal(t, rest, from);
        has_rest = false;
        continue;
      }
      const int32_t last = t.units && plan_.open_ended[static_cast<size_t>(child)]
                               ? next_literal(n, i + 1)
                               : -1;
      const int32_t unit = last < 0 ? -1 : unit_part(n, i, last, rest);
      if (unit < 0) {
        from = node(t, child, from);
        continue;
      }
      from = call(t, unit, from);
      has_rest = true;
      i = last - 1;
    }
    return from;
  }

  // Index in the sequence of the first literal with a text, at `from` or later; -1 when none.
  int32_t next_literal(const Node& sequence, int32_t from) const {
    for (int32_t i = from; i < sequence.b; ++i) {
      const Node& n = syntax_.nodes[static_cast<size_t>(
          syntax_.children[static_cast<size_t>(sequence.a + i)])];
      if (n.kind == NodeKind::kLiteral && !syntax_.texts[static_cast<size_t>(n.a)].empty())
        return i;
    }
    return -1;
  }

  // The part of a unit, or -1 when it would not be closed. `rest`: what stays of the literal.
  int32_t unit_part(const Node& sequence, int32_t first, int32_t last, std::string& rest) {
    const Node& closing =
        syntax_.nodes[static_cast<size_t>(syntax_.children[static_cast<size_t>(sequence.a + last)])];
    const std::string& text = syntax_.texts[static_cast<size_t>(closing.a)];
    size_t length = 1;
    while (length < text.size() && (static_cast<uint8_t>(text[length]) & 0xC0) == 0x80) ++length;
    rest = text.substr(length);
    const auto [at, fresh] = unit_of_.try_emplace(sequence.a + first, -1);
    if (!fresh) return at->second;
    LocalPart body = build_unit({sequence.a, first, last, text.substr(0, length)});
    if (!is_closed(body)) return -1;
    const int32_t part = add_part(PartKind::kPlain);
    parts_.back().body = std::move(body);
    unit_of_[sequence.a + first] = part;
    return part;
  }

  const Syntax& syntax_;
  const RulePlan& plan_;
  Budget& budget_;
  std::vector<LoweredPart> parts_;
  std::vector<int32_t> part_of_rule_;
  std::map<int32_t, int32_t> part_of_node_;
  std::map<int32_t, int32_t> unit_of_;  // by place of the first element in Syntax::children
  std::vector<Waiting> waiting_;
};

}  // namespace

std::vector<LoweredPart> lower(const Syntax& syntax, const RulePlan& plan, Budget& budget) {
  return Lowering(syntax, plan, budget).run();
}

bool is_closed(const LocalPart& part) {
  if (!part.deterministic) return false;
  return std::all_of(part.states.begin(), part.states.end(), [](const LocalPart::State& s) {
    return s.calls.empty() && (!s.final || s.edges.empty());
  });
}

}  // namespace inferd
