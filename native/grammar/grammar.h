// A compiled grammar over a vocabulary: immutable, shared by all threads that answer with it.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "grammar/compile/automaton.h"
#include "grammar/compile/budget.h"
#include "grammar/token_trie.h"

namespace inferd {

struct TokenTable;

class Grammar {
 public:
  Grammar(Automaton automaton, std::shared_ptr<const TokenTrie> trie,
          std::vector<std::shared_ptr<const TokenTable>> tables);

  const Automaton& automaton() const { return automaton_; }
  const TokenTrie& vocabulary() const { return *vocabulary_; }
  // What tokens do at a position, or null where that is found while answering.
  const TokenTable* table(int32_t position) const {
    return tables_[static_cast<size_t>(position)].get();
  }
  // Memory; tables that other grammars of the vocabulary may share are counted in full.
  int64_t bytes() const { return bytes_; }

 private:
  Automaton automaton_;
  std::shared_ptr<const TokenTrie> vocabulary_;
  std::vector<std::shared_ptr<const TokenTable>> tables_;  // by position
  int64_t bytes_;
};

// Compiles a GBNF text (dialect: syntax/parser.h); its root rule is `root`. Blocks as long as
// limits.deadline. Throws Error with one plain sentence: kUsage for a text that is wrong (line and
// column for syntax), kUnsupported past a limit, kClosed when cancelled.
std::shared_ptr<const Grammar> compile_grammar(std::string_view gbnf,
                                               std::shared_ptr<const TokenTrie> vocabulary,
                                               const GrammarLimits& limits);

}  // namespace inferd
