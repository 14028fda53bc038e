// See table_parts.h.
#include "grammar/table_parts.h"

#include <algorithm>

#include "grammar/match/mask_bits.h"

namespace inferd {
namespace {

constexpr size_t kMaxTails = 200'000;
// A list of more tokens is longer than this share of a mask: a number of 32 bits each.
constexpr size_t kMaskShare = 2;

}  // namespace

int64_t tokens_at(const Automaton& automaton, const TokenTrie& vocabulary, int32_t position) {
  const Position& p = automaton.positions[static_cast<size_t>(position)];
  int64_t tokens = 0;
  for (int32_t e = p.edges; e < p.edges_end; ++e) {
    const ByteEdge& edge = automaton.edges[static_cast<size_t>(e)];
    tokens += vocabulary.tokens_starting(edge.lo, edge.hi);
  }
  return tokens;
}

namespace {

// Calls add(ids) for the tokens that end at a node, or go on with a byte of `follow`.
template <typename Add>
void each_behind(const ByteTrie& trie, uint32_t node, const ByteSet* follow, Add&& add) {
  add(trie.ids(node));
  for (uint32_t child = node + 1; child < trie.node(node).end; child = trie.node(child).end)
    if (follow == nullptr || (*follow)[trie.node(child).byte]) add(trie.ids_below(child));
}

}  // namespace

bool TableParts::leave(uint32_t node, size_t depth, const ByteSet* follow) {
  each_behind(vocabulary_.trie(), node, follow, [&](std::span<const int32_t> ids) {
    for (const int32_t id : ids) tails_.emplace_back(vocabulary_.token(id).substr(depth), id);
  });
  return tails_.size() <= kMaxTails;
}

bool TableParts::leave_unsure(uint32_t node, const ByteSet* follow) {
  each_behind(vocabulary_.trie(), node, follow, [&](std::span<const int32_t> ids) { unsure(ids); });
  return unsure_.size() <= kMaxTails;
}

std::vector<int32_t> TableParts::tail_ids() const {
  std::vector<int32_t> ids;
  for (const auto& [text, id] : tails_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::shared_ptr<const TokenTable> TableParts::finish() {
  auto table = std::make_shared<TokenTable>();
  int64_t bytes = sizeof *table;
  if (allowed_.size() * kMaskShare > vocabulary_.mask_words()) {
    std::vector<uint32_t> mask(vocabulary_.mask_words());
    set_bits(mask, allowed_);
    bytes += static_cast<int64_t>(mask.size() * sizeof(uint32_t));
    table->mask = std::make_shared<const std::vector<uint32_t>>(std::move(mask));
  } else {
    table->list.assign(allowed_.begin(), allowed_.end());
    bytes += static_cast<int64_t>(allowed_.size() * sizeof(int32_t));
  }
  if (!tails_.empty()) {
    table->tails = std::make_shared<const ByteTrie>(std::move(tails_));
    bytes += table->tails->bytes();
  }
  if (!unsure_.empty()) {
    std::vector<std::pair<std::string, int32_t>> whole;
    for (const int32_t id : unsure_) whole.emplace_back(vocabulary_.token(id), id);
    table->unsure = std::make_shared<const ByteTrie>(std::move(whole));
    bytes += table->unsure->bytes();
  }
  table->bytes = bytes;
  return table;
}

}  // namespace inferd
