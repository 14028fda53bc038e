// Token tables that do not depend on a grammar, kept with the vocabulary: those of positions in
// closed parts (Part::closed), which behave alike wherever they stand. Thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "grammar/match/token_table.h"

namespace inferd {

class TableCache {
 public:
  // What a position does with every text as long as a token: 128 bits of hash.
  using Key = std::array<uint64_t, 2>;
  // When the tables kept grow beyond this, all are forgotten; grammars keep those that they use.
  static constexpr int64_t kMaxBytes = 128 << 20;

  // Null when it is not kept.
  std::shared_ptr<const TokenTable> find(const Key& key) const {
    const std::lock_guard lock(mutex_);
    const auto at = tables_.find(key);
    return at == tables_.end() ? nullptr : at->second;
  }
  void keep(const Key& key, std::shared_ptr<const TokenTable> table) {
    const std::lock_guard lock(mutex_);
    bytes_ += table->bytes;
    if (bytes_ > kMaxBytes) {
      tables_.clear();
      bytes_ = table->bytes;
    }
    tables_.insert_or_assign(key, std::move(table));
  }

 private:
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<const TokenTable>> tables_;
  int64_t bytes_ = 0;
};

}  // namespace inferd
