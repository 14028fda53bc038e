// Which bytes can come right behind a part, wherever it is called.
#pragma once
#include <bitset>
#include <vector>

#include "grammar/compile/automaton.h"
#include "grammar/compile/budget.h"

namespace inferd {

using ByteSet = std::bitset<256>;

// Bytes that have an edge at a position, calls apart.
ByteSet edge_bytes(const Automaton& automaton, int32_t position);

// By part.
std::vector<ByteSet> follow_bytes(const Automaton& automaton, Budget& budget);

}  // namespace inferd
