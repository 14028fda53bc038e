// See closed_tables.h.
#include "grammar/closed_tables.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "grammar/match/mask_bits.h"
#include "grammar/match/table_cache.h"
#include "grammar/position_hashes.h"
#include "grammar/table_parts.h"

namespace inferd {
namespace {

// A position with fewer tokens is as quickly walked with readings.
constexpr int64_t kWide = 512;
// ByteTrie::Node::height stops counting here: longer tokens are compared as if they were alike
// nowhere.
constexpr int32_t kTallest = 255;
// Nodes of the vocabulary that the walks of one grammar may visit. Tables that are not made then
// are found while answering, in a millisecond each time.
constexpr int64_t kMaxVisits = 60'000'000;
// Positions whose steps are written out, 1 KiB each.
constexpr size_t kMaxSteps = 8192;
// A table that cuts more tokens off a mask has a mask of its own.
constexpr size_t kMaxCut = 2048;

// A table that was made by a whole walk, which others can differ from.
struct Base {
  int32_t position;
  std::shared_ptr<const TokenTable> table;
  std::vector<int32_t> tail_ids;  // sorted
};

class ClosedTables {
 public:
  ClosedTables(const Automaton& automaton, const TokenTrie& vocabulary, Budget& budget)
      : automaton_(automaton), vocabulary_(vocabulary), trie_(vocabulary.trie()), budget_(budget) {}

  void run(std::vector<std::shared_ptr<const TokenTable>>& tables) {
    std::vector<int32_t> closed, wide;
    for (int32_t i = 0; i < static_cast<int32_t>(automaton_.positions.size()); ++i) {
      const auto part = static_cast<size_t>(automaton_.positions[static_cast<size_t>(i)].part);
      if (!automaton_.parts[part].closed) continue;
      closed.push_back(i);
      if (tokens_at(automaton_, vocabulary_, i) >= kWide) wide.push_back(i);
    }
    const int32_t longest = trie_.node(0).height;
    if (wide.empty() || longest >= kTallest) return;
    write_steps(closed);
    hashes_.emplace(automaton_, std::move(closed), longest, budget_);
    const TableCache& cache = vocabulary_.tables();
    for (const int32_t position : wide) {
      auto& table = tables[static_cast<size_t>(position)];
      const TableCache::Key& key = hashes_->hash(position);
      table = cache.find(key);
      if (table == nullptr && visits_ < kMaxVisits) table = make(position, key);
      if (table != nullptr) budget_.memory(table->bytes);
    }
  }

 private:
  // Where each byte leads from each position: walks ask millions of times.
  void write_steps(const std::vector<int32_t>& closed) {
    if (closed.size() > kMaxSteps) return;
    row_.assign(automaton_.positions.size(), -1);
    steps_.assign(closed.size() * 256, -1);
    for (size_t n = 0; n < closed.size(); ++n) {
      const Position& p = automaton_.positions[static_cast<size_t>(closed[n])];
      row_[static_cast<size_t>(closed[n])] = static_cast<int32_t>(n);
      for (int32_t e = p.edges; e < p.edges_end; ++e) {
        const ByteEdge& edge = automaton_.edges[static_cast<size_t>(e)];
        std::fill(steps_.begin() + static_cast<std::ptrdiff_t>(n * 256 + edge.lo),
                  steps_.begin() + static_cast<std::ptrdiff_t>(n * 256 + edge.hi + 1), edge.target);
      }
    }
  }

  int32_t step(int32_t position, uint8_t byte) const {
    if (steps_.empty()) return automaton_.step(position, byte);
    return steps_[static_cast<size_t>(row_[static_cast<size_t>(position)]) * 256 + byte];
  }

  std::shared_ptr<const TokenTable> make(int32_t position, const TableCache::Key& key) {
    std::shared_ptr<const TokenTable> table = make(position);
    if (table != nullptr) vocabulary_.tables().keep(key, table);
    return table;
  }
  std::shared_ptr<const TokenTable> make(int32_t position) {
    const Base* base = nearest(position);
    if (base != nullptr) {
      auto table = differ(*base, position);
      if (table != nullptr) return table;
    }
    TableParts parts(vocabulary_);
    if (!walk_from(position, 1, trie_.size(), parts, nullptr)) return nullptr;
    Base made{position, nullptr, parts.tail_ids()};
    made.table = parts.finish();
    for (size_t level = 0; level < PositionHashes::kLengths.size(); ++level)
      by_hash_.try_emplace({level, hashes_->hash(position, level)}, bases_.size());
    bases_.push_back(std::move(made));
    return bases_.back().table;
  }

  // The base that behaves alike for the longest texts.
  const Base* nearest(int32_t position) const {
    for (size_t level = PositionHashes::kLengths.size(); level-- > 0;) {
      const auto at = by_hash_.find({level, hashes_->hash(position, level)});
      if (at != by_hash_.end()) return &bases_[at->second];
    }
    return nullptr;
  }

  bool few(int32_t position) const {
    const Position& p = automaton_.positions[static_cast<size_t>(position)];
    return automaton_.parts[static_cast<size_t>(p.part)].kind == PartKind::kDistinct &&
           automaton_.num_texts[static_cast<size_t>(position)] < Automaton::kMany;
  }
  bool final(int32_t position) const {
    return automaton_.positions[static_cast<size_t>(position)].final;
  }

  // Visits the nodes [first, end) that can be read from a position `above` bytes into the tokens;
  // with `added`, only ids of allowed tokens are wanted. False when a table cannot say it.
  bool walk_from(int32_t position, uint32_t first, uint32_t end, TableParts& parts,
                 std::vector<int32_t>* added) {
    std::vector<std::pair<uint32_t, int32_t>> above;  // ends of nodes, positions behind them
    for (uint32_t i = first; i < end;) {
      while (!above.empty() && above.back().first <= i) above.pop_back();
      const ByteTrie::Node& node = trie_.node(i);
      const int32_t at = step(above.empty() ? position : above.back().second, node.byte);
      if (at < 0) {
        i = node.end;
        continue;
      }
      budget_.pace();
      ++visits_;
      if (added != nullptr && (final(at) || few(at))) return false;
      if (final(at)) {
        if (!parts.leave(i, above.size() + 1, nullptr)) return false;
        i = node.end;  // nothing goes on behind the end
        continue;
      }
      const std::span<const int32_t> ids = trie_.ids(i);
      if (added != nullptr) {
        added->insert(added->end(), ids.begin(), ids.end());
      } else if (few(at)) {
        parts.unsure(ids);
      } else {
        parts.allow(ids);
      }
      above.emplace_back(node.end, at);
      ++i;
    }
    return true;
  }

  // The table of a position as a difference to a base, found by a walk that ends where both do the
  // same with all that is left of the tokens. Null when it would add what the base has no room for.
  std::shared_ptr<const TokenTable> differ(const Base& base, int32_t position) {
    if (base.table->mask == nullptr || base.table->unsure != nullptr) return nullptr;
    struct Step {
      uint32_t end;
      int32_t own;
      int32_t base;
    };
    std::vector<Step> above;
    std::vector<int32_t> removed, added;
    TableParts unused(vocabulary_);
    const auto remove_below = [&](uint32_t node) {
      const std::span<const int32_t> ids = trie_.ids_below(node);
      removed.insert(removed.end(), ids.begin(), ids.end());
    };
    for (uint32_t i = 1; i < trie_.size();) {
      while (!above.empty() && above.back().end <= i) above.pop_back();
      const ByteTrie::Node& node = trie_.node(i);
      const int32_t own = step(above.empty() ? position : above.back().own, node.byte);
      const int32_t other = step(above.empty() ? base.position : above.back().base, node.byte);
      budget_.pace();
      ++visits_;
      if (own >= 0 && other >= 0 && !hashes_->alike(own, other, node.height)) {
        if (final(own) || final(other) || few(own) || few(other)) return nullptr;
        above.push_back({node.end, own, other});
        ++i;
        continue;
      }
      if (own < 0 && other >= 0) remove_below(i);
      if (own >= 0 && other < 0) {
        if (final(own) || few(own)) return nullptr;
        const std::span<const int32_t> ids = trie_.ids(i);
        added.insert(added.end(), ids.begin(), ids.end());
        if (!walk_from(own, i + 1, node.end, unused, &added)) return nullptr;
      }
      i = node.end;
    }
    return difference(base, removed, std::move(added));
  }

  static std::shared_ptr<const TokenTable> difference(const Base& base,
                                                      std::vector<int32_t>& removed,
                                                      std::vector<int32_t> added) {
    auto table = std::make_shared<TokenTable>();
    table->bytes = static_cast<int64_t>(sizeof *table);
    table->tails = base.table->tails;
    std::vector<uint32_t> gone(base.table->mask->size());
    set_bits(gone, removed);
    std::copy_if(
        base.tail_ids.begin(), base.tail_ids.end(), std::back_inserter(table->tails_cut),
        [&](int32_t id) { return (gone[static_cast<size_t>(id) / 32] >> (id % 32) & 1u) != 0; });
    table->list = std::move(added);
    table->list.shrink_to_fit();
    if (removed.size() <= kMaxCut) {
      table->mask = base.table->mask;
      table->cut = removed;
    } else {
      std::vector<uint32_t> mask = *base.table->mask;
      clear_bits(mask, removed);
      table->bytes += static_cast<int64_t>(mask.size() * sizeof(uint32_t));
      table->mask = std::make_shared<const std::vector<uint32_t>>(std::move(mask));
    }
    table->bytes += static_cast<int64_t>(
        (table->cut.size() + table->list.size() + table->tails_cut.size()) * sizeof(int32_t));
    return table;
  }

  const Automaton& automaton_;
  const TokenTrie& vocabulary_;
  const ByteTrie& trie_;
  Budget& budget_;
  std::vector<int32_t> row_;    // by position: its row in steps_
  std::vector<int32_t> steps_;  // [row][byte]: position or -1; empty when there are too many
  int64_t visits_ = 0;
  std::optional<PositionHashes> hashes_;
  std::vector<Base> bases_;
  std::map<std::pair<size_t, PositionHashes::Hash>, size_t> by_hash_;
};

}  // namespace

void build_closed_tables(const Automaton& automaton, const TokenTrie& vocabulary, Budget& budget,
                         std::vector<std::shared_ptr<const TokenTable>>& tables) {
  ClosedTables(automaton, vocabulary, budget).run(tables);
}

}  // namespace inferd
