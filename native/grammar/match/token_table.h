// What the tokens of a vocabulary do at a position of an automaton, found when the grammar is
// compiled, so that a mask needs no walk through the vocabulary (the method of XGrammar's adaptive
// token masks).
//
// Seen from one position, a token has one of four fates:
//   it stays in the part, or in parts that it calls: allowed whoever called the part;
//   it passes the part's end: what is behind the end decides, which only the callers know. Tokens
//     are grouped by what they have behind the end, as few texts stand behind many tokens: of all
//     tokens with a closing quote inside, some hundred tails;
//   it depends on which texts a scope has taken already;
//   it fits nowhere.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/match/byte_trie.h"

namespace inferd {

// Positions that behave almost alike, as those of a string that may go on for 200 or for 201
// characters, share what is large and say only where they differ.
struct TokenTable {
  // Tokens that are allowed: those of the mask, if there is one, without those cut, and the list.
  std::shared_ptr<const std::vector<uint32_t>> mask;
  std::vector<int32_t> cut;
  std::vector<int32_t> list;
  // By the bytes behind the end of the part, "" included; null when there are none. Without those
  // cut, which are sorted.
  std::shared_ptr<const ByteTrie> tails;
  std::vector<int32_t> tails_cut;
  // Whole tokens that have to be tried; null when there are none.
  std::shared_ptr<const ByteTrie> unsure;
  // Memory, without what it shares with a table made earlier.
  int64_t bytes = 0;
};

}  // namespace inferd
