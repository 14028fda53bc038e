// See mask_filler.h.
#include "grammar/mask_filler.h"

#include "grammar/match/mask_bits.h"
#include "grammar/match/position_walk.h"
#include "grammar/match/token_table.h"
#include "grammar/match/trie_walk.h"

namespace inferd {

void MaskFiller::fill() {
  // A copy: levels come and go above them.
  const std::span<const Reading> latest = readings_.latest();
  const std::vector<Reading> readings(latest.begin(), latest.end());
  for (const Reading& reading : readings)
    if (!reading.called) fill_from(reading);
}

void MaskFiller::fill_from(const Reading& reading) {
  const Automaton& automaton = grammar_.automaton();
  const Position& position = automaton.positions[static_cast<size_t>(reading.position)];
  if (position.ends_only()) return;  // where it returns to has readings of its own
  const TokenTable* table = grammar_.table(reading.position);
  if (table == nullptr) return fill_by_walk(reading);
  fill_allowed(*table);
  if (table->unsure != nullptr) {
    readings_.push_alone(reading);
    walk_into(*table->unsure, words_);
    readings_.pop();
  }
  if (table->tails == nullptr) return;
  if (automaton.parts[static_cast<size_t>(position.part)].kind == PartKind::kDistinct) {
    fill_tails_of_distinct(reading, *table);
  } else if (table->tails_cut.empty()) {
    fill_tails(reading, *table->tails, words_);
  } else {
    std::vector<uint32_t> own(words_.size());
    fill_tails(reading, *table->tails, own);
    clear_bits(own, table->tails_cut);
    add_words(words_, own);
  }
}

void MaskFiller::fill_allowed(const TokenTable& table) {
  if (table.mask != nullptr && table.cut.empty()) add_words(words_, *table.mask);
  if (table.mask != nullptr && !table.cut.empty()) {
    // Other readings may allow what this one does not.
    std::vector<uint32_t> own = *table.mask;
    clear_bits(own, table.cut);
    add_words(words_, own);
  }
  set_bits(words_, table.list);
}

void MaskFiller::fill_by_walk(const Reading& reading) {
  const ByteTrie& trie = grammar_.vocabulary().trie();
  readings_.push_alone(reading);
  PositionWalk(grammar_.automaton(), trie, readings_, reading.position)
      .run([&](uint32_t node, const Readings* readings) {
        const std::span<const int32_t> ids = trie.ids(node);
        if (!ids.empty() && (readings == nullptr || readings_.viable())) set_bits(words_, ids);
        return true;
      });
  readings_.pop();
}

void MaskFiller::fill_tails(const Reading& reading, const ByteTrie& tails,
                            std::span<uint32_t> words) {
  if (!readings_.push_returns(reading)) return;
  judge(tails.ids(0), words);
  walk_into(tails, words);
  readings_.pop();
}

// The tails are tried as if the text of the distinct part were like no other. Tokens that begin
// with what completes it to a text that is taken are taken out again: a closed part has ended
// there. In another one, some may go on; they are tried as a whole, as are tokens with another
// distinct text, which may be the same.
void MaskFiller::fill_tails_of_distinct(const Reading& reading, const TokenTable& table) {
  std::vector<uint32_t> own(words_.size());
  unsure_.clear();
  fill_tails(reading, *table.tails, own);
  clear_bits(own, table.tails_cut);
  const Automaton& automaton = grammar_.automaton();
  const Position& position = automaton.positions[static_cast<size_t>(reading.position)];
  const bool closed = automaton.parts[static_cast<size_t>(position.part)].closed;
  const ByteTrie& trie = grammar_.vocabulary().trie();
  for (const std::string& rest : readings_.taken_rests(reading)) {
    const int64_t node = trie.find(rest);
    if (node <= 0) continue;
    const std::span<const int32_t> ids = trie.ids_below(static_cast<uint32_t>(node));
    clear_bits(own, ids);
    if (!closed) unsure_.insert(unsure_.end(), ids.begin(), ids.end());
  }
  add_words(words_, own);
  for (const int32_t id : unsure_) try_token(reading, id);
}

void MaskFiller::try_token(const Reading& reading, int32_t id) {
  readings_.push_alone(reading);
  size_t levels = 1;
  bool good = true;
  for (const char c : grammar_.vocabulary().token(id)) {
    good = readings_.push(static_cast<uint8_t>(c));
    if (!good) break;
    ++levels;
  }
  if (good && readings_.viable()) set_bits(words_, std::span(&id, 1));
  for (; levels > 0; --levels) readings_.pop();
}

void MaskFiller::walk_into(const ByteTrie& trie, std::span<uint32_t> words) {
  walk(trie, readings_, [&](std::span<const int32_t> ids) {
    judge(ids, words);
    return true;
  });
}

void MaskFiller::judge(std::span<const int32_t> ids, std::span<uint32_t> words) {
  if (ids.empty()) return;
  const Readings::Fate fate = readings_.fate();
  if (fate == Readings::Fate::kCertain) set_bits(words, ids);
  if (fate == Readings::Fate::kUnsure) unsure_.insert(unsure_.end(), ids.begin(), ids.end());
}

}  // namespace inferd
