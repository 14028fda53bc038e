// See table_builder.h.
#include "grammar/table_builder.h"

#include <algorithm>
#include <map>

#include "grammar/closed_tables.h"
#include "grammar/compile/follow.h"
#include "grammar/readings.h"
#include "grammar/table_cache.h"
#include "grammar/table_parts.h"

namespace inferd {
namespace {

// Nodes of the vocabulary that all walks of one grammar may visit, those of closed parts apart.
constexpr int64_t kMaxVisits = 3'000'000;

class TableBuilder {
 public:
  TableBuilder(const Automaton& automaton, const TokenTrie& vocabulary, Budget& budget)
      : automaton_(automaton),
        vocabulary_(vocabulary),
        budget_(budget),
        follow_(follow_bytes(automaton, budget)),
        tables_(automaton.positions.size()) {}

  std::vector<std::shared_ptr<const TokenTable>> run() {
    build_closed_tables(automaton_, vocabulary_, budget_, tables_);
    for (const int32_t position : by_width()) {
      if (visits_ > kMaxVisits) break;
      auto& table = tables_[static_cast<size_t>(position)];
      if (table != nullptr) continue;
      table = walk_from(position);
      if (table != nullptr) budget_.memory(table->bytes());
    }
    return std::move(tables_);
  }

 private:
  // Positions whose tables this makes, those with the most tokens first.
  std::vector<int32_t> by_width() const {
    std::vector<std::pair<int64_t, int32_t>> width;
    for (int32_t i = 0; i < static_cast<int32_t>(automaton_.positions.size()); ++i) {
      const Position& p = automaton_.positions[static_cast<size_t>(i)];
      const Part& part = automaton_.parts[static_cast<size_t>(p.part)];
      // In closed parts, what is wide has a table already. The end of any other %distinct depends
      // on more than a table tells.
      if (p.ends_only() || part.closed || part.kind == PartKind::kDistinct) continue;
      width.emplace_back(-tokens_at(automaton_, vocabulary_, i), i);
    }
    std::sort(width.begin(), width.end());
    std::vector<int32_t> out;
    for (const auto& [tokens, position] : width) out.push_back(position);
    return out;
  }

  std::shared_ptr<const TokenTable> walk_from(int32_t position) {
    const ByteTrie& trie = vocabulary_.trie();
    const Position& p = automaton_.positions[static_cast<size_t>(position)];
    const ByteSet& follow = follow_[static_cast<size_t>(p.part)];
    Readings readings(automaton_, position);
    const ByteSet first = readings.next_bytes();
    TableParts parts(vocabulary_);
    std::vector<uint32_t> ends;
    try {
      for (uint32_t i = 1; i < trie.size();) {
        while (!ends.empty() && ends.back() <= i) {
          ends.pop_back();
          readings.pop();
        }
        const ByteTrie::Node& node = trie.node(i);
        if ((ends.empty() && !first[node.byte]) || !readings.push(node.byte)) {
          i = node.end;
          continue;
        }
        budget_.tick();
        if (++visits_ > kMaxVisits) return nullptr;
        ends.push_back(node.end);
        if (!trie.ids(i).empty()) {
          const Readings::Fate fate = readings.fate();
          if (fate == Readings::Fate::kCertain) parts.allow(trie.ids(i));
          if (fate == Readings::Fate::kUnsure) parts.unsure(trie.ids(i));
        }
        if (readings.left() && !parts.leave(i, ends.size(), &follow))
          return nullptr;
        ++i;
      }
    } catch (const AmbiguityError&) {
      return nullptr;  // the answer meets it too, if it ever comes here
    }
    return parts.finish();
  }

  const Automaton& automaton_;
  const TokenTrie& vocabulary_;
  Budget& budget_;
  const std::vector<ByteSet> follow_;
  std::vector<std::shared_ptr<const TokenTable>> tables_;
  int64_t visits_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<const TokenTable>> build_tables(const Automaton& automaton,
                                                            const TokenTrie& vocabulary,
                                                            Budget& budget) {
  return TableBuilder(automaton, vocabulary, budget).run();
}

}  // namespace inferd
