// See lower.h.
#include "grammar/compile/lower.h"

#include <algorithm>
#include <map>
#include <optional>

namespace inferd {
namespace {

// States of a unit before it is made deterministic: what is larger is no unit.
constexpr int32_t kMaxUnitStates = 1 << 15;
// Rules that one part copies although they are called elsewhere.
constexpr int32_t kMaxTailCopies = 4096;

class Lowering {
 public:
  Lowering(const Syntax& syntax, const RulePlan& plan, Budget& budget)
      : syntax_(syntax), plan_(plan), budget_(budget), part_of_rule_(syntax.rules.size(), -1) {}

  std::vector<LoweredPart> run() {
    call_rule(syntax_.root);
    // Parts name others, which come to the end of the list.
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const Waiting w = waiting_[i];
      LocalPart body = build({w.node, w.kind == PartKind::kDistinct});
      parts_[static_cast<size_t>(w.part)].body = std::move(body);
    }
    return std::move(parts_);
  }

 private:
  struct Waiting {
    int32_t part;
    int32_t node;
    PartKind kind;
  };
  struct Body {
    int32_t node;
    bool copy_all;  // of a %distinct: calls nothing
  };
  // The elements [first, last) of a sequence, and a text behind them.
  struct Unit {
    int32_t sequence;
    int32_t first;
    int32_t last;
    std::string closing;
  };
  // The copy of a rule between two states.
  struct Copy {
    int32_t rule;
    int32_t from;
    int32_t to;
  };
  // What is being lowered into.
  struct Target {
    Nfa nfa;
    // Calls nothing: a %distinct, for which what cannot be copied is an error, or a unit, which is
    // given up then.
    bool copy_all = false;
    bool units = true;
    bool is_unit = false;
    bool given_up = false;
    // Start of the copy of a rule that ends at a state: whoever uses the rule with the same to
    // follow shares it.
    std::map<std::pair<int32_t, int32_t>, int32_t> copies;
    std::vector<Copy> waiting;  // states that exist, of rules still to be written there
    int32_t tail_to = 0;        // where the rule that is being written ends
    int32_t tail_copies = 0;
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
      waiting_.push_back({part, syntax_.rules[static_cast<size_t>(rule)].node, PartKind::kPlain});
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
      waiting_.push_back({at->second, node.a, kind});
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
    begin(t);
    into(t, body.node, t.nfa.start, t.nfa.end);
    write_copies(t);
    LocalPart out = determinize(t.nfa, budget_);
    if (body.copy_all && !out.deterministic) {
      throw Error(ErrorCode::kUnsupported,
                  "The texts of a %distinct of the grammar need too many states.");
    }
    return out;
  }

  // Nothing when it would not be closed.
  std::optional<LocalPart> build_unit(const Unit& unit) {
    Target t;
    t.units = false;
    t.copy_all = true;
    t.is_unit = true;
    begin(t);
    int32_t at = t.nfa.start;
    for (int32_t i = unit.first; i < unit.last; ++i) {
      const int32_t next = new_state(t);
      into(t, syntax_.children[static_cast<size_t>(unit.sequence + i)], at, next);
      at = next;
    }
    literal(t, unit.closing, at, t.nfa.end);
    write_copies(t);
    if (t.given_up) {
      budget_.states(-t.nfa.num_states);
      return std::nullopt;
    }
    LocalPart out = determinize(t.nfa, budget_);
    if (!is_closed(out)) {
      budget_.states(-t.nfa.num_states - static_cast<int64_t>(out.states.size()));
      return std::nullopt;
    }
    return out;
  }

  void begin(Target& t) {
    t.nfa.start = new_state(t);
    t.nfa.end = new_state(t);
    t.tail_to = t.nfa.end;
  }

  void write_copies(Target& t) {
    while (!t.waiting.empty()) {
      const Copy copy = t.waiting.back();
      t.waiting.pop_back();
      t.tail_to = copy.to;
      into(t, syntax_.rules[static_cast<size_t>(copy.rule)].node, copy.from, copy.to);
    }
  }

  // Adds all ways through a node, from one state to another.
  void into(Target& t, int32_t index, int32_t from, int32_t to) {
    budget_.tick();
    if (t.is_unit && t.nfa.num_states > kMaxUnitStates) t.given_up = true;
    if (t.given_up) return;
    const Node& n = syntax_.nodes[static_cast<size_t>(index)];
    switch (n.kind) {
      case NodeKind::kLiteral:
        return literal(t, syntax_.texts[static_cast<size_t>(n.a)], from, to);
      case NodeKind::kClass:
        return char_class(t, syntax_.classes[static_cast<size_t>(n.a)], from, to);
      case NodeKind::kSequence:
        return sequence(t, n, from, to);
      case NodeKind::kChoice:
        for (int32_t i = 0; i < n.b; ++i)
          into(t, syntax_.children[static_cast<size_t>(n.a + i)], from, to);
        return;
      case NodeKind::kRepeat:
        return repeat(t, n, from, to);
      case NodeKind::kRule:
        return rule(t, n.a, from, to);
      case NodeKind::kScope:
      case NodeKind::kDistinct:
        if (t.is_unit) {
          t.given_up = true;
          return;
        }
        if (t.copy_all) {
          throw Error(ErrorCode::kUsage,
                      "A %distinct of the grammar contains another %scope or %distinct.");
        }
        t.nfa.edges.push_back({from, to, call_node(index)});
        return;
    }
  }

  // A rule that is called elsewhere, but small but for the rules that it ends with, is copied where
  // the rule that uses it ends with it, too: chains of such rules, as automata are written in GBNF,
  // then become states again.
  void rule(Target& t, int32_t rule, int32_t from, int32_t to) {
    const auto r = static_cast<size_t>(rule);
    const auto shared = t.copies.find({rule, to});
    if (shared != t.copies.end()) return t.nfa.add_empty(from, shared->second);
    if (plan_.called[r]) {
      const bool tail = to == t.tail_to && plan_.small[r] && !plan_.recursive[r] &&
                        t.tail_copies < kMaxTailCopies;
      if (!tail && !t.copy_all) {
        t.nfa.edges.push_back({from, to, call_rule(rule)});
        return;
      }
      if (plan_.recursive[r] && t.is_unit) {
        t.given_up = true;
        return;
      }
      if (plan_.recursive[r]) {
        throw Error(ErrorCode::kUsage,
                    format("A %%distinct of the grammar contains the rule \"%s\", which contains "
                           "itself.",
                           syntax_.rules[r].name.c_str()));
      }
      ++t.tail_copies;
    }
    const int32_t start = new_state(t);
    t.copies.emplace(std::pair(rule, to), start);
    t.nfa.add_empty(from, start);
    t.waiting.push_back({rule, start, to});
  }

  void literal(Target& t, const std::string& text, int32_t from, int32_t to) {
    if (text.empty()) return t.nfa.add_empty(from, to);
    for (size_t i = 0; i < text.size(); ++i) {
      const int32_t next = i + 1 == text.size() ? to : new_state(t);
      const auto byte = static_cast<uint8_t>(text[i]);
      t.nfa.edges.push_back({from, next, Nfa::kBytes, byte, byte});
      from = next;
    }
  }

  // Sequences that end alike share their last states: those where 1, 2 or 3 bytes of any kind
  // complete the character.
  void char_class(Target& t, const CodePoints& points, int32_t from, int32_t to) {
    std::map<std::vector<std::pair<uint8_t, uint8_t>>, int32_t> states;
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
  }

  void repeat(Target& t, const Node& n, int32_t from, int32_t to) {
    const bool endless = n.max == Node::kUnbounded;
    for (int32_t i = 0; i < n.min; ++i) {
      const bool last = i + 1 == n.max;
      const int32_t next = last ? to : new_state(t);
      into(t, n.a, from, next);
      from = next;
    }
    if (endless) {
      const int32_t loop = new_state(t);
      t.nfa.add_empty(from, loop);
      into(t, n.a, loop, loop);
      from = loop;
    }
    for (int32_t i = n.min; i < n.max; ++i) {
      t.nfa.add_empty(from, to);
      const int32_t next = i + 1 == n.max ? to : new_state(t);
      into(t, n.a, from, next);
      from = next;
    }
    if (from != to) t.nfa.add_empty(from, to);
  }

  void sequence(Target& t, const Node& n, int32_t from, int32_t to) {
    if (n.b == 0) return t.nfa.add_empty(from, to);
    for (int32_t i = 0; i < n.b;) {
      const int32_t child = syntax_.children[static_cast<size_t>(n.a + i)];
      const int32_t last =
          t.units && plan_.open_ended[static_cast<size_t>(child)] ? next_literal(n, i + 1) : -1;
      std::string rest;  // of the literal whose first character a unit takes
      const int32_t unit = last < 0 ? -1 : unit_part(n, i, last, rest);
      i = unit < 0 ? i + 1 : last + 1;
      const int32_t next = i == n.b ? to : new_state(t);
      if (unit < 0) {
        into(t, child, from, next);
      } else if (rest.empty()) {
        t.nfa.edges.push_back({from, next, unit});
      } else {
        const int32_t behind = new_state(t);
        t.nfa.edges.push_back({from, behind, unit});
        literal(t, rest, behind, next);
      }
      from = next;
    }
  }

  // Index in the sequence of the first literal with a text, at `from` or later; -1 when none.
  int32_t next_literal(const Node& sequence, int32_t from) const {
    for (int32_t i = from; i < sequence.b; ++i) {
      const Node& n =
          syntax_.nodes[static_cast<size_t>(syntax_.children[static_cast<size_t>(sequence.a + i)])];
      if (n.kind == NodeKind::kLiteral && !syntax_.texts[static_cast<size_t>(n.a)].empty())
        return i;
    }
    return -1;
  }

  // The part of a unit, or -1 when it would not be closed, or not pay. `rest`: what stays of the
  // literal.
  int32_t unit_part(const Node& sequence, int32_t first, int32_t last, std::string& rest) {
    const Node& closing =
        syntax_
            .nodes[static_cast<size_t>(syntax_.children[static_cast<size_t>(sequence.a + last)])];
    const std::string& text = syntax_.texts[static_cast<size_t>(closing.a)];
    // Half the words of a vocabulary begin with a space, and behind such a unit all would be tails,
    // tried at each mask.
    if (text[0] == ' ') return -1;
    size_t length = 1;
    while (length < text.size() && (static_cast<uint8_t>(text[length]) & 0xC0) == 0x80) ++length;
    rest = text.substr(length);
    const auto [at, fresh] = unit_of_.try_emplace(sequence.a + first, -1);
    if (!fresh) return at->second;
    std::optional<LocalPart> body = build_unit({sequence.a, first, last, text.substr(0, length)});
    if (!body.has_value()) return -1;
    const int32_t part = add_part(PartKind::kPlain);
    parts_.back().body = std::move(*body);
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
