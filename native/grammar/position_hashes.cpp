// See position_hashes.h.
#include "grammar/position_hashes.h"

namespace inferd {
namespace {

uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9FB21C651E98DF25;
  return h ^ (h >> 32);
}

}  // namespace

// What a position does with n bytes follows from its edges, and from what their targets do with
// n - 1.
PositionHashes::PositionHashes(const Automaton& automaton, std::vector<int32_t> positions,
                               int32_t length, Budget& budget)
    : automaton_(automaton),
      positions_(std::move(positions)),
      index_(automaton.positions.size(), -1) {
  std::vector<Hash> now;
  for (size_t n = 0; n < positions_.size(); ++n) {
    index_[static_cast<size_t>(positions_[n])] = static_cast<int32_t>(n);
    now.push_back(finality(positions_[n]));
  }
  own_ = now;
  std::vector<Hash> next(now.size());
  for (int32_t round = 1; round <= length; ++round) {
    for (size_t n = 0; n < positions_.size(); ++n) {
      budget.pace();
      next[n] = once(positions_[n], now);
    }
    now.swap(next);
    if (rounds_.size() < kLengths.size() && kLengths[rounds_.size()] == round)
      rounds_.push_back(now);
  }
  while (rounds_.size() < kLengths.size()) rounds_.push_back(now);
  rounds_.push_back(std::move(now));
}

bool PositionHashes::alike(int32_t a, int32_t b, int32_t length) const {
  if (a == b) return true;
  size_t level = 0;
  while (level < kLengths.size() && length > kLengths[level]) ++level;
  const Hash& own = rounds_[level][index(a)];
  const Hash& other = rounds_[level][index(b)];
  return own[0] == other[0] && own[1] == other[1];
}

// Distinct parts are set apart: their tables leave open which texts are taken.
PositionHashes::Hash PositionHashes::finality(int32_t position) const {
  const Position& p = automaton_.positions[static_cast<size_t>(position)];
  const bool distinct = automaton_.parts[static_cast<size_t>(p.part)].kind == PartKind::kDistinct;
  const bool few =
      distinct && automaton_.num_texts[static_cast<size_t>(position)] < Automaton::kMany;
  const uint64_t value = 8u + (few ? 4u : 0u) + (distinct ? 2u : 0u) + (p.final ? 1u : 0u);
  return {mix(0x243F6A8885A308D3, value), mix(0x13198A2E03707344, value)};
}

PositionHashes::Hash PositionHashes::once(int32_t position,
                                          const std::vector<Hash>& targets) const {
  const Position& p = automaton_.positions[static_cast<size_t>(position)];
  Hash h = own_[index(position)];
  for (int32_t e = p.edges; e < p.edges_end;) {
    const ByteEdge& edge = automaton_.edges[static_cast<size_t>(e)];
    const Hash& target = targets[index(edge.target)];
    uint64_t hi = edge.hi;
    // Ranges side by side whose targets do the same are one.
    for (++e; e < p.edges_end; ++e) {
      const ByteEdge& more = automaton_.edges[static_cast<size_t>(e)];
      if (more.lo != hi + 1 || targets[index(more.target)] != target) break;
      hi = more.hi;
    }
    for (size_t k = 0; k < h.size(); ++k)
      h[k] = mix(mix(h[k], uint64_t{edge.lo} << 8 | hi), target[k]);
  }
  return h;
}

}  // namespace inferd
