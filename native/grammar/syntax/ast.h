// A grammar as it was written: rules made of nodes. Nodes name each other by index; a node comes
// after its children.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/syntax/code_points.h"

namespace inferd {

enum class NodeKind : uint8_t {
  kLiteral,   // texts[a], UTF-8
  kClass,     // classes[a]
  kSequence,  // children[a .. a + b)
  kChoice,    // children[a .. a + b)
  kRepeat,    // node a, at least `min` and at most `max` times
  kRule,      // what rule a matches
  kScope,     // %scope( node a )
  kDistinct,  // %distinct{ literal_lists[b] }( node a )
};

struct Node {
  static constexpr int32_t kUnbounded = -1;

  NodeKind kind;
  int32_t a = 0;
  int32_t b = 0;
  int32_t min = 0;
  int32_t max = 0;  // or kUnbounded
};

struct SyntaxRule {
  std::string name;
  int32_t node = -1;
  int32_t line = 0;  // of the first use or the definition, for messages
};

struct Syntax {
  std::vector<Node> nodes;
  std::vector<int32_t> children;
  std::vector<std::string> texts;
  std::vector<CodePoints> classes;
  std::vector<std::vector<std::string>> literal_lists;
  std::vector<SyntaxRule> rules;
  int32_t root = 0;  // index into rules
};

}  // namespace inferd
