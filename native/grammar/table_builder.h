// Makes the token tables of a compiled grammar (token_table.h).
#pragma once
#include <memory>
#include <vector>

#include "grammar/compile/automaton.h"
#include "grammar/compile/budget.h"
#include "grammar/match/token_table.h"
#include "grammar/token_trie.h"

namespace inferd {

// By position; null where a walk while answering is as good, or where tables would cost too much.
std::vector<std::shared_ptr<const TokenTable>> build_tables(const Automaton& automaton,
                                                            const TokenTrie& vocabulary,
                                                            Budget& budget);

}  // namespace inferd
