// Collects what a walk from a position finds, and makes a TokenTable of it.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "grammar/compile/automaton.h"
#include "grammar/compile/follow.h"
#include "grammar/match/token_table.h"
#include "grammar/token_trie.h"

namespace inferd {

// How many tokens start with a byte that has an edge at a position.
int64_t tokens_at(const Automaton& automaton, const TokenTrie& vocabulary, int32_t position);

class TableParts {
 public:
  explicit TableParts(const TokenTrie& vocabulary) : vocabulary_(vocabulary) {}

  void allow(std::span<const int32_t> ids) {
    allowed_.insert(allowed_.end(), ids.begin(), ids.end());
  }
  void unsure(std::span<const int32_t> ids) {
    unsure_.insert(unsure_.end(), ids.begin(), ids.end());
  }
  // At this node, `depth` bytes into its tokens, the part can end; what comes then starts with a
  // byte of `follow` when that is not null. False when there are too many tails for a table.
  bool leave(uint32_t node, size_t depth, const ByteSet* follow);
  // The same where it depends on texts taken whether the part can end.
  bool leave_unsure(uint32_t node, const ByteSet* follow);
  // Tokens with tails so far, sorted.
  std::vector<int32_t> tail_ids() const;
  std::shared_ptr<const TokenTable> finish();

 private:
  const TokenTrie& vocabulary_;
  std::vector<int32_t> allowed_;
  std::vector<int32_t> unsure_;
  std::vector<std::pair<std::string, int32_t>> tails_;
};

}  // namespace inferd
