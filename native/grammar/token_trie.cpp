// See token_trie.h.
#include "grammar/token_trie.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/match/table_cache.h"

namespace inferd {

TokenTrie::TokenTrie(std::vector<std::string> token_bytes, std::vector<int32_t> end_ids)
    : end_ids_(std::move(end_ids)), starting_(257), tables_(std::make_unique<TableCache>()) {
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
  const auto size = static_cast<int64_t>(token_bytes.size());
  for (const int32_t id : end_ids_) {
    if (id < 0 || id >= size)
      throw Error(ErrorCode::kUsage, format("The token %d that ends an answer is not one of the "
                                            "%lld tokens of the vocabulary.",
                                            id, static_cast<long long>(size)));
    token_bytes[static_cast<size_t>(id)].clear();
  }
  int64_t total = 0;
  for (const std::string& token : token_bytes) total += static_cast<int64_t>(token.size());
  if (total > INT32_MAX || size > INT32_MAX)
    throw Error(ErrorCode::kUsage, "The vocabulary is too large for structured answers.");
  text_.reserve(static_cast<size_t>(total));
  starts_.reserve(token_bytes.size() + 1);
  std::vector<std::pair<std::string, int32_t>> entries;
  for (std::string& token : token_bytes) {
    const auto id = static_cast<int32_t>(starts_.size());
    starts_.push_back(static_cast<uint32_t>(text_.size()));
    text_ += token;
    if (token.empty()) continue;
    ++starting_[static_cast<size_t>(static_cast<uint8_t>(token[0])) + 1];
    entries.emplace_back(std::move(token), id);
  }
  starts_.push_back(static_cast<uint32_t>(text_.size()));
  for (size_t b = 1; b < starting_.size(); ++b) starting_[b] += starting_[b - 1];
  trie_ = ByteTrie(std::move(entries));
}

TokenTrie::~TokenTrie() = default;

std::string_view TokenTrie::token(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  const auto i = static_cast<size_t>(id);
  return std::string_view(text_).substr(starts_[i], starts_[i + 1] - starts_[i]);
}

bool TokenTrie::is_end(int32_t id) const {
  return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
}

int64_t TokenTrie::bytes() const {
  return static_cast<int64_t>(text_.capacity() + starts_.capacity() * sizeof(uint32_t)) +
         trie_.bytes();
}

}  // namespace inferd
