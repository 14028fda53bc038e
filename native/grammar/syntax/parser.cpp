// See parser.h. Recursive descent over the bytes of the text; each level of recursion counts
// against the limit of depth.
#include "grammar/syntax/parser.h"

#include <limits>
#include <unordered_map>

#include "core/error.h"
#include "grammar/syntax/scanner.h"

namespace inferd {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const SyntaxLimits& limits) : in_(text), limits_(limits) {}

  Syntax parse() {
    in_.skip_space(true);
    while (!in_.at_end()) {
      parse_rule();
      in_.skip_space(true);
    }
    for (const SyntaxRule& rule : out_.rules) {
      if (rule.node < 0) {
        throw Error(ErrorCode::kUsage,
                    format("The grammar uses the rule \"%s\" in line %d, but does not define it.",
                           rule.name.c_str(), rule.line));
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end())
      throw Error(ErrorCode::kUsage, "The grammar defines no rule named \"root\".");
    out_.root = root->second;
    return std::move(out_);
  }

 private:
  void parse_rule() {
    const int32_t rule = rule_index(in_.name("the name of a rule"));
    if (out_.rules[rule].node >= 0)
      in_.fail(format("the rule \"%s\" is defined a second time", out_.rules[rule].name.c_str()));
    in_.skip_space(false);
    in_.expect("::=");
    in_.skip_space(true);
    const int32_t node = parse_choice(false, 0);
    out_.rules[rule].node = node;
    in_.skip_space(false);
    if (!in_.at_end() && !in_.at_newline()) in_.fail_expecting("the end of the rule");
  }

  int32_t rule_index(const std::string& name) {
    const auto [at, fresh] = rules_.try_emplace(name, static_cast<int32_t>(out_.rules.size()));
    if (fresh) out_.rules.push_back({.name = name, .line = in_.line()});
    return at->second;
  }

  int32_t add(const Node& node) {
    out_.nodes.push_back(node);
    return static_cast<int32_t>(out_.nodes.size()) - 1;
  }

  int32_t add_list(NodeKind kind, const std::vector<int32_t>& nodes) {
    if (nodes.size() == 1) return nodes[0];
    const auto first = static_cast<int32_t>(out_.children.size());
    out_.children.insert(out_.children.end(), nodes.begin(), nodes.end());
    return add({.kind = kind, .a = first, .b = static_cast<int32_t>(nodes.size())});
  }

  // `nested`: inside parentheses, where newlines are only space.
  int32_t parse_choice(bool nested, int32_t depth) {
    if (depth > limits_.max_depth)
      in_.fail(format("parentheses and repetitions are nested deeper than the limit of %d",
                      limits_.max_depth));
    std::vector<int32_t> options{parse_sequence(nested, depth)};
    while (in_.next_is_bar(nested)) {
      in_.skip_space(true);
      in_.expect("|");
      in_.skip_space(true);
      options.push_back(parse_sequence(nested, depth));
    }
    return add_list(NodeKind::kChoice, options);
  }

  int32_t parse_sequence(bool nested, int32_t depth) {
    std::vector<int32_t> items;
    for (;;) {
      in_.skip_space(nested);
      if (!in_.at_item()) break;
      items.push_back(parse_repeats(parse_item(depth), depth));
    }
    return add_list(NodeKind::kSequence, items);
  }

  int32_t parse_item(int32_t depth) {
    const char c = in_.peek();
    if (c == '"') return add_literal(in_.literal());
    if (c == '[' || c == '.') {
      out_.classes.push_back(in_.char_class());
      return add({.kind = NodeKind::kClass, .a = static_cast<int32_t>(out_.classes.size()) - 1});
    }
    if (c == '(') return parse_group(depth);
    if (c == '%') return parse_extension(depth);
    return add({.kind = NodeKind::kRule, .a = rule_index(in_.name("a rule"))});
  }

  int32_t add_literal(std::string text) {
    out_.texts.push_back(std::move(text));
    return add({.kind = NodeKind::kLiteral, .a = static_cast<int32_t>(out_.texts.size()) - 1});
  }

  int32_t parse_group(int32_t depth) {
    in_.expect("(");
    const int32_t node = parse_choice(true, depth + 1);
    in_.skip_space(true);
    in_.expect(")");
    return node;
  }

  int32_t parse_extension(int32_t depth) {
    if (!limits_.extensions) in_.fail("\"%\" is not allowed here");
    in_.expect("%");
    const std::string word = in_.name("scope or distinct");
    if (word == "scope") {
      const int32_t child = parse_group(depth);
      return add({.kind = NodeKind::kScope, .a = child});
    }
    if (word != "distinct") in_.fail("after \"%\", scope or distinct is expected");
    std::vector<std::string> literals;
    in_.expect("{");
    in_.skip_space(true);
    while (in_.peek() == '"') {
      literals.push_back(in_.literal());
      in_.skip_space(true);
    }
    in_.expect("}");
    const int32_t child = parse_group(depth);
    out_.literal_lists.push_back(std::move(literals));
    return add({.kind = NodeKind::kDistinct,
                .a = child,
                .b = static_cast<int32_t>(out_.literal_lists.size()) - 1});
  }

  // Zero or more of * + ? {m} {m,} {m,n} behind an item.
  int32_t parse_repeats(int32_t node, int32_t depth) {
    for (;;) {
      Node repeat{.kind = NodeKind::kRepeat, .a = node, .max = Node::kUnbounded};
      if (in_.take('*')) {
      } else if (in_.take('+')) {
        repeat.min = 1;
      } else if (in_.take('?')) {
        repeat.max = 1;
      } else if (in_.peek() == '{') {
        parse_counts(repeat);
      } else {
        return node;
      }
      if (++depth > limits_.max_depth)
        in_.fail(format("parentheses and repetitions are nested deeper than the limit of %d",
                        limits_.max_depth));
      node = add(repeat);
    }
  }

  void parse_counts(Node& repeat) {
    in_.expect("{");
    in_.skip_space(true);
    repeat.min = in_.number();
    repeat.max = repeat.min;
    in_.skip_space(true);
    if (in_.take(',')) {
      in_.skip_space(true);
      repeat.max = in_.peek() == '}' ? Node::kUnbounded : in_.number();
      in_.skip_space(true);
    }
    in_.expect("}");
    if (repeat.max != Node::kUnbounded && repeat.max < repeat.min)
      in_.fail(format("a repetition of at least %d and at most %d times is impossible", repeat.min,
                      repeat.max));
  }

  Scanner in_;
  const SyntaxLimits limits_;
  Syntax out_;
  std::unordered_map<std::string, int32_t> rules_;
};

}  // namespace

Syntax parse_grammar(std::string_view text, const SyntaxLimits& limits) {
  return Parser(text, limits).parse();
}

}  // namespace inferd
