// Which rules become parts of the automaton, and which are copied into the rules that use them.
//
// Copying makes the automaton fast: within a part, what may follow is known without a stack. But a
// rule that contains itself cannot be copied, and one that is large and used often would multiply:
// those are called. Of a circle of rules, only one is.
#pragma once
#include <cstdint>
#include <vector>

#include "grammar/compile/budget.h"
#include "grammar/syntax/ast.h"

namespace inferd {

struct RulePlan {
  // Indexed by rule.
  std::vector<bool> called;
  std::vector<bool> recursive;  // of the called ones: contains itself
  // Small, leaving out the rules that it ends with: those can be shared (Lowering::rule).
  std::vector<bool> small;
  // Indexed by node: a repetition of many different characters may be the last that it matches.
  // What follows such a repetition is best kept apart from it (UnitPlan in lower.h).
  std::vector<bool> open_ended;
};

RulePlan plan_rules(const Syntax& syntax, Budget& budget);

}  // namespace inferd
