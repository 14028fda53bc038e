// See table_builder.h.
#include "grammar/table_builder.h"

#include <algorithm>

#include "grammar/closed_tables.h"
#include "grammar/compile/follow.h"
#include "grammar/match/position_walk.h"
#include "grammar/match/readings.h"
#include "grammar/table_parts.h"

namespace inferd {
namespace {

// Nodes of the vocabulary that all walks of one grammar may visit, those of closed parts apart.
// What a walk finds from a position with few next bytes is found in some 10 us while answering,
// too: that is not worth more than a few milliseconds of compiling.
constexpr int64_t kMaxVisits = 3'000'000;
constexpr int64_t kMaxNarrowVisits = 500'000;
// So many next bytes make a position wide.
constexpr size_t kWideBytes = 20;

// What it costs to find that a position has too many readings, in visits.
constexpr int64_t kAmbiguousVisits = 50'000;
// So many given bytes make a place in a literal.
constexpr int32_t kLiteralBytes = 3;
// A walk of so few nodes is done again while answering.
constexpr int64_t kFewVisits = 48;

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
    const auto [wide, narrow] = by_width();
    build(wide, kMaxVisits);
    build(narrow, visits_ + kMaxNarrowVisits);
    return std::move(tables_);
  }

 private:
  // Positions whose tables this makes; the wide ones first, by how many tokens may come.
  std::pair<std::vector<int32_t>, std::vector<int32_t>> by_width() {
    std::vector<std::pair<int64_t, int32_t>> wide;
    std::vector<int32_t> narrow, out;
    for (int32_t i = 0; i < static_cast<int32_t>(automaton_.positions.size()); ++i) {
      const Position& p = automaton_.positions[static_cast<size_t>(i)];
      const Part& part = automaton_.parts[static_cast<size_t>(p.part)];
      // In closed parts, what is wide has a table already.
      if (p.ends_only() || part.closed) continue;
      if (visits_ > kMaxVisits) break;
      budget_.pace();
      const ByteSet bytes = next_bytes(i);
      if (bytes.count() >= kWideBytes) {
        wide.emplace_back(-tokens_starting(bytes), i);
      } else if (!is_in_literal(i)) {
        narrow.push_back(i);
      }
    }
    std::sort(wide.begin(), wide.end());
    for (const auto& [tokens, position] : wide) out.push_back(position);
    return {std::move(out), std::move(narrow)};
  }

  // None where calls lead to more readings than there may be.
  ByteSet next_bytes(int32_t position) {
    const Position& p = automaton_.positions[static_cast<size_t>(position)];
    if (p.calls == p.calls_end) return edge_bytes(automaton_, position);
    try {
      const Readings readings(automaton_, position);
      visits_ += static_cast<int64_t>(readings.latest().size()) - 1;
      return readings.next_bytes();
    } catch (const AmbiguityError&) {
      visits_ += kAmbiguousVisits;
      return {};
    }
  }

  void build(const std::vector<int32_t>& positions, int64_t max_visits) {
    for (const int32_t position : positions) {
      if (visits_ > max_visits) return;
      auto& table = tables_[static_cast<size_t>(position)];
      table = walk_from(position);
      if (table != nullptr) budget_.memory(table->bytes);
    }
  }

  // The next bytes are given: few nodes lie on that way.
  bool is_in_literal(int32_t position) const {
    for (int32_t n = 0; n < kLiteralBytes; ++n) {
      const Position& p = automaton_.positions[static_cast<size_t>(position)];
      if (p.final || p.calls != p.calls_end || p.edges + 1 != p.edges_end) return false;
      const ByteEdge& edge = automaton_.edges[static_cast<size_t>(p.edges)];
      if (edge.lo != edge.hi) return false;
      position = edge.target;
    }
    return true;
  }

  int64_t tokens_starting(const ByteSet& bytes) const {
    int64_t tokens = 0;
    for (int32_t b = 0; b < 256; ++b) {
      const auto byte = static_cast<uint8_t>(b);
      if (bytes[byte]) tokens += vocabulary_.tokens_starting(byte, byte);
    }
    return tokens;
  }

  // Null when the table is not worth its memory, or not to be had.
  std::shared_ptr<const TokenTable> walk_from(int32_t position) {
    using Fate = Readings::Fate;
    const int64_t before = visits_;
    const ByteSet& follow =
        follow_[static_cast<size_t>(automaton_.positions[static_cast<size_t>(position)].part)];
    const ByteTrie& trie = vocabulary_.trie();
    TableParts parts(vocabulary_);
    try {
      Readings readings(automaton_, position);
      PositionWalk walk(automaton_, trie, readings, position);
      const bool whole = walk.run([&](uint32_t node, const Readings* at) {
        budget_.pace();
        if (++visits_ > kMaxVisits) return false;
        const std::span<const int32_t> ids = trie.ids(node);
        if (!ids.empty()) {
          const Fate fate = at == nullptr ? Fate::kCertain : at->local_fate();
          if (fate == Fate::kCertain) parts.allow(ids);
          if (fate == Fate::kUnsure) parts.unsure(ids);
        }
        if (at == nullptr || at->left() == Fate::kNone) return true;
        if (at->left() == Fate::kUnsure) return parts.leave_unsure(node, &follow);
        return parts.leave(node, walk.depth(), &follow);
      });
      if (!whole) return nullptr;
    } catch (const AmbiguityError&) {
      return nullptr;  // the answer meets it too, if it ever comes here
    }
    return visits_ - before < kFewVisits ? nullptr : parts.finish();
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
