// Puts lowered parts together into the automaton: what no text can complete is taken out, so that
// every position left is on the way to some match, and each part gets to know what it can do.
#pragma once
#include "grammar/compile/automaton.h"
#include "grammar/compile/budget.h"
#include "grammar/compile/lower.h"

namespace inferd {

// Throws Error(kUsage) when nothing matches, or when a %distinct can match the empty text.
Automaton link(const Syntax& syntax, std::vector<LoweredPart> parts, Budget& budget);

}  // namespace inferd
