// See closed_tables.h.
#include "grammar/closed_tables.h"

#include <algorithm>

#include "grammar/table_cache.h"
#include "grammar/table_parts.h"

namespace inferd {
namespace {

// A position with fewer tokens is as quickly walked with readings.
constexpr int64_t kWide = 512;
// ByteTrie::Node::height stops counting here.
constexpr int32_t kTallest = 255;

class ClosedTables {
 public:
  ClosedTables(const Automaton& automaton, const TokenTrie& vocabulary, Budget& budget)
      : automaton_(automaton), vocabulary_(vocabulary), budget_(budget) {}

  void run(std::vector<std::shared_ptr<const TokenTable>>& tables) {
    std::vector<int32_t> wide;
    for (int32_t i = 0; i < static_cast<int32_t>(automaton_.positions.size()); ++i) {
      const auto part = static_cast<size_t>(automaton_.positions[static_cast<size_t>(i)].part);
      if (!automaton_.parts[part].closed) continue;
      closed_.push_back(i);
      if (tokens_at(automaton_, vocabulary_, i) >= kWide) wide.push_back(i);
    }
    if (wide.empty()) return;
    const bool shared = vocabulary_.trie().node(0).height < kTallest;
    if (shared) hash();
    TableCache& cache = vocabulary_.tables();
    for (const int32_t position : wide) {
      auto& table = tables[static_cast<size_t>(position)];
      if (shared) table = cache.find(hash_[static_cast<size_t>(position)]);
      if (table == nullptr) {
        table = walk_from(position);
        if (table == nullptr) continue;
        if (shared) cache.keep(hash_[static_cast<size_t>(position)], table);
      }
      budget_.memory(table->bytes());
    }
  }

 private:
  static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9FB21C651E98DF25;
    return h ^ (h >> 32);
  }

  // Two positions get equal hashes when they treat all texts as long as a token alike. What a
  // position does with n bytes follows from its edges and from what their targets do with n - 1.
  void hash() {
    hash_.resize(automaton_.positions.size());
    std::vector<TableCache::Key> next(closed_.size());
    for (const int32_t i : closed_) hash_[static_cast<size_t>(i)] = finality(i);
    for (int32_t round = 0; round <= vocabulary_.trie().node(0).height; ++round) {
      for (size_t n = 0; n < closed_.size(); ++n) next[n] = hash_once(closed_[n]);
      for (size_t n = 0; n < closed_.size(); ++n) hash_[static_cast<size_t>(closed_[n])] = next[n];
    }
  }

  // Distinct parts differ: their tables leave open what texts are taken.
  TableCache::Key finality(int32_t i) const {
    const Position& p = automaton_.positions[static_cast<size_t>(i)];
    const bool distinct =
        automaton_.parts[static_cast<size_t>(p.part)].kind == PartKind::kDistinct;
    const uint64_t few =
        distinct && automaton_.num_texts[static_cast<size_t>(i)] < Automaton::kMany ? 4 : 0;
    const uint64_t value = 8 + few + (distinct ? 2 : 0) + (p.final ? 1 : 0);
    return {mix(0x243F6A8885A308D3, value), mix(0x13198A2E03707344, value)};
  }

  TableCache::Key hash_once(int32_t i) {
    budget_.tick();
    const Position& p = automaton_.positions[static_cast<size_t>(i)];
    TableCache::Key h = finality(i);
    for (int32_t e = p.edges; e < p.edges_end;) {
      const ByteEdge& edge = automaton_.edges[static_cast<size_t>(e)];
      const TableCache::Key& target = hash_[static_cast<size_t>(edge.target)];
      uint64_t hi = edge.hi;
      // Ranges side by side whose targets do the same are one.
      for (++e; e < p.edges_end; ++e) {
        const ByteEdge& more = automaton_.edges[static_cast<size_t>(e)];
        if (more.lo != hi + 1 || hash_[static_cast<size_t>(more.target)] != target) break;
        hi = more.hi;
      }
      for (size_t k = 0; k < h.size(); ++k)
        h[k] = mix(mix(h[k], uint64_t{edge.lo} << 8 | hi), target[k]);
    }
    return h;
  }

  std::shared_ptr<const TokenTable> walk_from(int32_t position) {
    const ByteTrie& trie = vocabulary_.trie();
    const Position& start = automaton_.positions[static_cast<size_t>(position)];
    const bool distinct =
        automaton_.parts[static_cast<size_t>(start.part)].kind == PartKind::kDistinct;
    TableParts parts(vocabulary_);
    std::vector<std::pair<uint32_t, int32_t>> above;  // ends of nodes, positions there
    for (uint32_t i = 1; i < trie.size();) {
      while (!above.empty() && above.back().first <= i) above.pop_back();
      const ByteTrie::Node& node = trie.node(i);
      const int32_t at =
          automaton_.step(above.empty() ? position : above.back().second, node.byte);
      if (at < 0) {
        i = node.end;
        continue;
      }
      budget_.tick();
      const Position& p = automaton_.positions[static_cast<size_t>(at)];
      if (p.final) {
        if (!parts.leave(i, above.size() + 1, nullptr)) return nullptr;
        i = node.end;  // nothing goes on behind the end
        continue;
      }
      const bool few = distinct && automaton_.num_texts[static_cast<size_t>(at)] < Automaton::kMany;
      if (few) {
        parts.unsure(trie.ids(i));
      } else {
        parts.allow(trie.ids(i));
      }
      above.emplace_back(node.end, at);
      ++i;
    }
    return parts.finish();
  }

  const Automaton& automaton_;
  const TokenTrie& vocabulary_;
  Budget& budget_;
  std::vector<int32_t> closed_;
  std::vector<TableCache::Key> hash_;
};

}  // namespace

void build_closed_tables(const Automaton& automaton, const TokenTrie& vocabulary, Budget& budget,
                         std::vector<std::shared_ptr<const TokenTable>>& tables) {
  ClosedTables(automaton, vocabulary, budget).run(tables);
}

}  // namespace inferd
