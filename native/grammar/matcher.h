// The state of one answer under a grammar: which tokens may come next.
//
// Errors: fill_mask, accept and only_token throw Error(kUnsupported) when the text can be read in
// more ways at once than Readings bounds. That needs a very ambiguous grammar; nothing has changed
// then, and asking again would throw again: the answer cannot go on.
//
// One %distinct ahead is looked at: a token is not allowed when all texts of the next %distinct
// that it leads to are taken. A grammar that asks for more distinct texts than there are can
// therefore lead to an empty mask, with complete() false.
//
// Not thread-safe; a copy is independent.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "grammar/grammar.h"
#include "grammar/match/readings.h"

namespace inferd {

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Grammar> grammar);

  // Takes a token. False when it is not allowed: nothing has changed.
  bool accept(int32_t token);
  // ceil(vocabulary / 32) words: bit i % 32 of word i / 32 says whether token i is allowed. Writes
  // every bit. Throws Error(kUsage) for a span of another size.
  void fill_mask(std::span<uint32_t> words);
  // The text so far is a whole match. Stays true after an end token was taken.
  bool complete() const { return readings_.ended(); }
  // The token that is the only one allowed, or -1.
  int32_t only_token();
  int64_t bytes() const { return readings_.bytes(); }

 private:
  std::shared_ptr<const Grammar> grammar_;
  Readings readings_;
  bool finished_ = false;  // an end token was taken
};

}  // namespace inferd
