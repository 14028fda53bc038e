// The compiled grammars of a process. The addon is loaded by several threads; requests of one
// schema come in by all of them, and the engine looks grammars up by number.
//
// Thread-safe. A text that several threads ask for at once is compiled by one of them while the
// others wait.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace inferd {

class GrammarStore {
 public:
  // Of grammars that nobody holds.
  static constexpr int64_t kKeptBytes = 64 << 20;

  explicit GrammarStore(int64_t kept_bytes = kKeptBytes) : kept_bytes_(kept_bytes) {}
  static GrammarStore& shared();

  // Number > 0 of a vocabulary; the same tokens and ends have the same number while somebody holds
  // it. Each call is a hold, to be given back with release_vocabulary(). Throws Error(kUsage) as
  // TokenTrie.
  int32_t vocabulary(std::vector<std::string> token_bytes, std::vector<int32_t> end_ids);
  // Gives one hold back; with the last one the vocabulary is forgotten, and its grammars that
  // nobody holds. Nothing happens for a number without holds.
  void release_vocabulary(int32_t number);

  // Compiles the text, or finds it compiled: the same text and vocabulary have the same number > 0
  // as long as they are kept. Each call is a hold, to be given back with release(). Throws as
  // compile_grammar, and Error(kUsage) for an unknown vocabulary. Blocks until compiled.
  int32_t hold(int32_t vocabulary, std::string_view text, const GrammarLimits& limits);
  // Null for a number that is not kept. What is returned lives as long as the caller keeps it.
  std::shared_ptr<const Grammar> find(int32_t number) const;
  // Gives one hold back. Nothing happens for a number without holds.
  void release(int32_t number);

  struct Counts {
    size_t vocabularies, grammars;
  };
  Counts counts() const;

 private:
  // Vocabulary, whether extensions are allowed, text.
  using Key = std::tuple<int32_t, bool, std::string>;
  struct Entry {
    std::shared_ptr<const Grammar> grammar;  // null while it is compiled
    int32_t number = 0;
    int64_t holds = 0;
    std::list<Key>::iterator kept;  // in kept_list_ while nobody holds it
  };

  struct Vocabulary {
    std::shared_ptr<const TokenTrie> trie;
    std::string content;
    int64_t holds = 0;
  };

  // Holds it; 0: not known.
  int32_t hold_known_vocabulary(const std::string& content);
  // Those that nobody holds: once their vocabulary is forgotten, no call can name them.
  void drop_grammars_of(int32_t vocabulary);
  void drop(std::list<Key>::iterator kept);
  int32_t hold_compiled(Entry& entry);
  void drop_kept();

  const int64_t kept_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable compiled_;
  std::map<int32_t, Vocabulary> vocabularies_;
  std::unordered_map<std::string, int32_t> vocabulary_numbers_;  // by content
  std::map<Key, Entry> entries_;
  std::unordered_map<int32_t, std::map<Key, Entry>::iterator> by_number_;
  std::list<Key> kept_list_;  // least recently used first
  int64_t kept_now_ = 0;      // bytes
  int32_t last_number_ = 0;   // of grammars and vocabularies
};

}  // namespace inferd
