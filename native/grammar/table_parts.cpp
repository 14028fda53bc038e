// See table_parts.h.
#include "grammar/table_parts.h"

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

bool TableParts::leave(uint32_t node, size_t depth, const ByteSet* follow) {
  const ByteTrie& trie = vocabulary_.trie();
  const auto add = [&](std::span<const int32_t> ids) {
    for (const int32_t id : ids) tails_.emplace_back(vocabulary_.token(id).substr(depth), id);
  };
  add(trie.ids(node));
  for (uint32_t child = node + 1; child < trie.node(node).end; child = trie.node(child).end)
    if (follow == nullptr || (*follow)[trie.node(child).byte]) add(trie.ids_below(child));
  return tails_.size() <= kMaxTails;
}

std::shared_ptr<const TokenTable> TableParts::finish() {
  auto table = std::make_shared<TokenTable>();
  if (allowed_.size() * kMaskShare > vocabulary_.mask_words()) {
    table->mask.resize(vocabulary_.mask_words());
    for (const int32_t id : allowed_)
      table->mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  } else {
    table->list.assign(allowed_.begin(), allowed_.end());
  }
  if (!tails_.empty()) table->tails = ByteTrie(std::move(tails_));
  if (!unsure_.empty()) {
    std::vector<std::pair<std::string, int32_t>> whole;
    for (const int32_t id : unsure_) whole.emplace_back(vocabulary_.token(id), id);
    table->unsure = ByteTrie(std::move(whole));
  }
  return table;
}

}  // namespace inferd
