// Token tables of the positions in closed parts: automata without calls, walked without readings,
// and shared by all grammars of the vocabulary.
#pragma once
#include <memory>
#include <vector>

#include "grammar/compile/automaton.h"
#include "grammar/compile/budget.h"
#include "grammar/match/token_table.h"
#include "grammar/token_trie.h"

namespace inferd {

// Fills tables[position] for the positions of closed parts where many tokens can come.
void build_closed_tables(const Automaton& automaton, const TokenTrie& vocabulary, Budget& budget,
                         std::vector<std::shared_ptr<const TokenTable>>& tables);

}  // namespace inferd
