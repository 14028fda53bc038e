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
  if (!tails.ids(0).empty() && readings_.viable()) set_bits(words, tails.ids(0));
  walk_into(tails, words);
  readings_.pop();
}

// The tails are tried as if the text of the distinct part were like no other; the tokens that
// complete it to a text that is taken are taken out again.
void MaskFiller::fill_tails_of_distinct(const Reading& reading, const TokenTable& table) {
  std::vector<uint32_t> own(words_.size());
  fill_tails(reading, *table.tails, own);
  clear_bits(own, table.tails_cut);
  // Another distinct text in the same token: only the real texts tell.
  if (readings_.unseen_compared()) return fill_by_walk(reading);
  const ByteTrie& trie = grammar_.vocabulary().trie();
  for (const std::string& rest : readings_.taken_rests(reading)) {
    const int64_t node = trie.find(rest);
    if (node > 0) clear_bits(own, trie.ids_below(static_cast<uint32_t>(node)));
  }
  add_words(words_, own);
}

void MaskFiller::walk_into(const ByteTrie& trie, std::span<uint32_t> words) {
  walk(trie, readings_, [&](std::span<const int32_t> ids) {
    if (readings_.viable()) set_bits(words, ids);
    return true;
  });
}

}  // namespace inferd
