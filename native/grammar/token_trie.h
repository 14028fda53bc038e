// The tokens of a vocabulary as a trie over their bytes, and what is known of them for all
// grammars.
//
// Immutable but for the cache of token tables (token_table.h), which locks; shared by all threads.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/match/byte_trie.h"

namespace inferd {

class TableCache;

class TokenTrie {
 public:
  // token_bytes[id] = what the token adds to the text; "" = never allowed, as for special tokens.
  // end_ids end an answer: they are allowed exactly when the text so far is complete, and never for
  // their bytes. Throws Error(kUsage) for an id outside the vocabulary.
  TokenTrie(std::vector<std::string> token_bytes, std::vector<int32_t> end_ids);
  ~TokenTrie();

  int32_t size() const { return static_cast<int32_t>(starts_.size()) - 1; }
  // Words of a mask.
  size_t mask_words() const { return (static_cast<size_t>(size()) + 31) / 32; }
  // "" for an id outside the vocabulary, an end id, or a token that is never allowed.
  std::string_view token(int32_t id) const;
  bool is_end(int32_t id) const;
  const std::vector<int32_t>& end_ids() const { return end_ids_; }
  const ByteTrie& trie() const { return trie_; }
  // How many tokens start with a byte of [lo, hi].
  int64_t tokens_starting(uint8_t lo, uint8_t hi) const {
    return starting_[static_cast<size_t>(hi) + 1] - starting_[lo];
  }
  TableCache& tables() const { return *tables_; }
  int64_t bytes() const;

 private:
  std::string text_;
  std::vector<uint32_t> starts_;
  std::vector<int32_t> end_ids_;  // sorted
  ByteTrie trie_;
  std::vector<int64_t> starting_;
  std::unique_ptr<TableCache> tables_;
};

}  // namespace inferd
