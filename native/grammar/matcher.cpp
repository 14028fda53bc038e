// See matcher.h.
#include "grammar/matcher.h"

#include <algorithm>

#include "grammar/mask_filler.h"
#include "grammar/match/trie_walk.h"

namespace inferd {

Matcher::Matcher(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), readings_(grammar_->automaton()) {}

bool Matcher::accept(int32_t token) {
  if (finished_) return false;
  const TokenTrie& vocabulary = grammar_->vocabulary();
  if (vocabulary.is_end(token)) {
    finished_ = complete();
    return finished_;
  }
  const std::string_view text = vocabulary.token(token);
  if (text.empty()) return false;
  try {
    const bool good = std::all_of(text.begin(), text.end(), [this](char c) {
      return readings_.push(static_cast<uint8_t>(c));
    });
    if (good && readings_.viable()) {
      readings_.commit();
      return true;
    }
  } catch (const Error&) {
    readings_.reset();
    throw;
  }
  readings_.reset();
  return false;
}

void Matcher::fill_mask(std::span<uint32_t> words) {
  const TokenTrie& vocabulary = grammar_->vocabulary();
  if (words.size() != vocabulary.mask_words()) {
    throw Error(ErrorCode::kUsage, format("a mask of this vocabulary has %zu words, not %zu",
                                          vocabulary.mask_words(), words.size()));
  }
  std::fill(words.begin(), words.end(), 0u);
  if (finished_) return;
  if (complete()) {
    for (const int32_t id : vocabulary.end_ids())
      words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  try {
    MaskFiller(*grammar_, readings_, words).fill();
  } catch (const Error&) {
    readings_.reset();
    throw;
  }
  readings_.reset();
}

int32_t Matcher::only_token() {
  if (finished_) return -1;
  const TokenTrie& vocabulary = grammar_->vocabulary();
  int32_t found = -1;
  if (complete()) {
    if (vocabulary.end_ids().size() > 1) return -1;
    if (!vocabulary.end_ids().empty()) found = vocabulary.end_ids()[0];
  }
  bool several = false;
  try {
    walk(vocabulary.trie(), readings_, [&](std::span<const int32_t> ids) {
      if (!readings_.viable()) return true;
      several = ids.size() > 1 || found >= 0;
      found = ids[0];
      return !several;
    });
  } catch (const Error&) {
    readings_.reset();
    throw;
  }
  readings_.reset();
  return several ? -1 : found;
}

}  // namespace inferd
