// See plan.h.
#include "grammar/compile/plan.h"

#include <algorithm>

namespace inferd {
namespace {

// A rule of more nodes than this is called when more than one place uses it.
constexpr int64_t kMaxCopied = 64;
// Copies inside copies may be so deep.
constexpr int32_t kMaxHeight = 200;
// A class of so many characters makes a repetition wide: many tokens can go on in it.
constexpr int64_t kWideClass = 24;
// So many nodes are not yet a repetition written out.
constexpr int64_t kFewChars = 8;

// What is known of a node, copied rules included.
struct Facts {
  int64_t size = 1;
  int64_t tail_size = 1;  // where nothing follows it: without the rules that it ends with
  int32_t height = 1;
  bool wide_char = false;   // contains a wide class
  bool ends_wide = false;   // a wide class may be the last that it matches
  bool open_ended = false;  // see RulePlan
};

class Planner {
 public:
  Planner(const Syntax& syntax, Budget& budget)
      : syntax_(syntax), budget_(budget), facts_(syntax.nodes.size()), uses_(syntax.rules.size()) {
    const size_t rules = syntax.rules.size();
    plan_.called.resize(rules);
    plan_.recursive.resize(rules);
    plan_.small.resize(rules);
    plan_.open_ended.resize(syntax.nodes.size());
  }

  RulePlan run() {
    list_uses();
    visit_from(syntax_.root);
    plan_.called[static_cast<size_t>(syntax_.root)] = true;
    for (size_t i = 0; i < facts_.size(); ++i) plan_.open_ended[i] = facts_[i].open_ended;
    return std::move(plan_);
  }

 private:
  // The nodes of a rule are contiguous and end with its own: they are made while it is read.
  void list_uses() {
    std::vector<size_t> by_node;
    for (size_t r = 0; r < syntax_.rules.size(); ++r) by_node.push_back(r);
    std::sort(by_node.begin(), by_node.end(),
              [this](size_t a, size_t b) { return syntax_.rules[a].node < syntax_.rules[b].node; });
    first_node_.resize(syntax_.rules.size());
    int32_t next = 0;
    for (const size_t r : by_node) {
      first_node_[r] = next;
      next = syntax_.rules[r].node + 1;
    }
    for (const Node& node : syntax_.nodes)
      if (node.kind == NodeKind::kRule) ++uses_[static_cast<size_t>(node.a)];
  }

  // Depth first through the rules; a use that leads back to a rule still open closes a circle.
  void visit_from(int32_t root) {
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> state(syntax_.rules.size(), kNew);
    struct Visit {
      int32_t rule;
      int32_t next;
    };
    std::vector<Visit> stack{{root, first_node_[static_cast<size_t>(root)]}};
    state[static_cast<size_t>(root)] = kOpen;
    while (!stack.empty()) {
      Visit& top = stack.back();
      budget_.tick();
      if (top.next > syntax_.rules[static_cast<size_t>(top.rule)].node) {
        state[static_cast<size_t>(top.rule)] = kDone;
        finish(top.rule);
        stack.pop_back();
        continue;
      }
      const Node& node = syntax_.nodes[static_cast<size_t>(top.next++)];
      if (node.kind != NodeKind::kRule) continue;
      const auto used = static_cast<size_t>(node.a);
      if (state[used] == kOpen) {
        plan_.called[used] = plan_.recursive[used] = true;
      } else if (state[used] == kNew) {
        state[used] = kOpen;
        stack.push_back({node.a, first_node_[used]});
      }
    }
  }

  // All rules that this one uses are finished, or called because they are still open.
  void finish(int32_t rule) {
    const auto r = static_cast<size_t>(rule);
    for (int32_t n = first_node_[r]; n <= syntax_.rules[r].node; ++n) {
      budget_.tick();
      facts_[static_cast<size_t>(n)] = facts_of(syntax_.nodes[static_cast<size_t>(n)]);
    }
    const Facts& own = facts_[static_cast<size_t>(syntax_.rules[r].node)];
    plan_.small[r] = own.tail_size <= kMaxCopied;
    if ((own.size > kMaxCopied && uses_[r] > 1) || own.height > kMaxHeight) plan_.called[r] = true;
  }

  Facts facts_of(const Node& node) const {
    Facts out;
    switch (node.kind) {
      case NodeKind::kLiteral:
        out.size = static_cast<int64_t>(syntax_.texts[static_cast<size_t>(node.a)].size()) + 1;
        out.tail_size = out.size;
        break;
      case NodeKind::kClass:
        out.wide_char = count(syntax_.classes[static_cast<size_t>(node.a)]) >= kWideClass;
        out.ends_wide = out.wide_char;
        break;
      case NodeKind::kSequence:
      case NodeKind::kChoice:
        return facts_of_list(node);
      case NodeKind::kRepeat: {
        out = child_facts(node.a);
        const int64_t times = node.max == Node::kUnbounded ? int64_t{node.min} + 1 : node.max;
        out.size = std::min<int64_t>(out.size * std::max<int64_t>(times, 1), INT32_MAX);
        out.tail_size = out.size;
        out.open_ended = out.open_ended || (out.wide_char && node.max != 1 && node.max != 0);
        break;
      }
      case NodeKind::kRule: {
        const auto r = static_cast<size_t>(node.a);
        if (plan_.recursive[r]) break;
        const Facts target = child_facts(syntax_.rules[r].node);
        if (!plan_.called[r]) out = target;
        out.tail_size = 1;
        out.wide_char = target.wide_char;
        out.ends_wide = target.ends_wide;
        out.open_ended = target.open_ended;
        break;
      }
      case NodeKind::kScope:
      case NodeKind::kDistinct:
        break;  // parts of their own
    }
    return out;
  }

  Facts child_facts(int32_t node) const {
    Facts out = facts_[static_cast<size_t>(node)];
    ++out.height;
    return out;
  }

  Facts facts_of_list(const Node& node) const {
    Facts out;
    for (int32_t i = 0; i < node.b; ++i) {
      const int32_t child = syntax_.children[static_cast<size_t>(node.a + i)];
      const Facts f = child_facts(child);
      const bool last = node.kind == NodeKind::kChoice || i + 1 == node.b;
      out.tail_size = std::min<int64_t>(out.tail_size + (last ? f.tail_size : f.size), INT32_MAX);
      out.size = std::min<int64_t>(out.size + f.size, INT32_MAX);
      out.height = std::max(out.height, f.height);
      out.wide_char = out.wide_char || f.wide_char;
      const Node& c = syntax_.nodes[static_cast<size_t>(child)];
      const bool literal = node.kind == NodeKind::kSequence && c.kind == NodeKind::kLiteral &&
                           !syntax_.texts[static_cast<size_t>(c.a)].empty();
      out.open_ended = !literal && (out.open_ended || f.open_ended);
      out.ends_wide = f.ends_wide || (node.kind == NodeKind::kChoice && out.ends_wide);
    }
    // Characters one by one, as in an automaton written in GBNF, are a repetition, too.
    out.open_ended = out.open_ended || (out.ends_wide && out.size > kFewChars);
    return out;
  }

  const Syntax& syntax_;
  Budget& budget_;
  RulePlan plan_;
  std::vector<Facts> facts_;
  std::vector<int32_t> uses_;
  std::vector<int32_t> first_node_;
};

}  // namespace

RulePlan plan_rules(const Syntax& syntax, Budget& budget) { return Planner(syntax, budget).run(); }

}  // namespace inferd
