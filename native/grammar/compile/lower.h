// Turns nodes into parts: each called rule, each %scope and %distinct, and units.
//
// A unit is a wide repetition (most tokens can go on in it, as in the text of a JSON string)
// together with what follows it up to the next literal, of which it takes the first character: all
// between a string's opening quote and behind its closing one. What it allows does not depend on
// where it stands, so that the tokens allowed in it are found once for all grammars of a vocabulary
// (token_table.h). A unit must be closed (Part::closed), and its literal begins with no space; else
// all is copied as usual.
#pragma once
#include <vector>

#include "grammar/compile/nfa.h"
#include "grammar/compile/plan.h"
#include "grammar/syntax/ast.h"

namespace inferd {

struct LoweredPart {
  PartKind kind = PartKind::kPlain;
  int32_t taken = -1;  // of kDistinct: index into Syntax::literal_lists
  LocalPart body;
};

// Part 0 is the root. Throws Error(kUnsupported) where a limit or the budget ends it.
std::vector<LoweredPart> lower(const Syntax& syntax, const RulePlan& plan, Budget& budget);

// Calls nothing, is deterministic, and has no edge at a final state.
bool is_closed(const LocalPart& part);

}  // namespace inferd
