// Which bytes can come right behind a part, wherever it is called.
#pragma once
#include <bitset>
#include <vector>

#include "grammar/compile/automaton.h"
#include "grammar/compile/budget.h"

namespace inferd {

using ByteSet = std::bitset<256>;

// By part.
std::vector<ByteSet> follow_bytes(const Automaton& automaton, Budget& budget);

}  // namespace inferd
