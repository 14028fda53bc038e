// Finds the tokens that may come next, for Matcher::fill_mask: from the token tables of the
// positions where the text is now, and by walks through the vocabulary where there are none.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/match/readings.h"

namespace inferd {

class MaskFiller {
 public:
  // Adds bits to `words`. Leaves levels on `readings` when it throws, which the caller resets.
  MaskFiller(const Grammar& grammar, Readings& readings, std::span<uint32_t> words)
      : grammar_(grammar), readings_(readings), words_(words) {}

  void fill();

 private:
  void fill_from(const Reading& reading);
  void fill_allowed(const TokenTable& table);
  void fill_by_walk(const Reading& reading);
  void fill_tails(const Reading& reading, const ByteTrie& tails, std::span<uint32_t> words);
  void fill_tails_of_distinct(const Reading& reading, const TokenTable& table);
  void try_token(const Reading& reading, int32_t id);
  // Tokens of `trie` that can be read from the latest level.
  void walk_into(const ByteTrie& trie, std::span<uint32_t> words);
  // Tokens that end at the latest level.
  void judge(std::span<const int32_t> ids, std::span<uint32_t> words);

  const Grammar& grammar_;
  Readings& readings_;
  std::span<uint32_t> words_;
  std::vector<int32_t> unsure_;  // tokens whose fate an unseen text decides
};

}  // namespace inferd
