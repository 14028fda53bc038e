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
#include <span>
#include <vector>

#include "grammar/byte_trie.h"

namespace inferd {

struct TokenTable {
  // Tokens that are allowed: a mask when they are many, else a list.
  std::vector<uint32_t> mask;
  std::vector<int32_t> list;
  // By the bytes behind the end of the part, "" included.
  ByteTrie tails;
  // Whole tokens that have to be tried.
  ByteTrie unsure;

  int64_t bytes() const {
    return static_cast<int64_t>(sizeof *this + mask.capacity() * sizeof(uint32_t) +
                                list.capacity() * sizeof(int32_t)) +
           tails.bytes() + unsure.bytes();
  }
};

}  // namespace inferd
