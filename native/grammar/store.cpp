// See store.h.
#include "grammar/store.h"

#include <chrono>
#include <tuple>

namespace inferd {
namespace {

// How soon a thread that waits for another one's compiling sees that it is cancelled.
constexpr auto kLook = std::chrono::milliseconds(20);

// All that makes a vocabulary, each token behind its length.
std::string content_of(const std::vector<std::string>& tokens, const std::vector<int32_t>& ends) {
  std::string out;
  const auto put = [&out](int64_t n) {
    out.append(reinterpret_cast<const char*>(&n), sizeof n);  // plain bytes of a number
  };
  for (const std::string& token : tokens) {
    put(static_cast<int64_t>(token.size()));
    out += token;
  }
  put(-1);
  for (const int32_t id : ends) put(id);
  return out;
}

}  // namespace

GrammarStore& GrammarStore::shared() {
  static GrammarStore store;
  return store;
}

int32_t GrammarStore::vocabulary(std::vector<std::string> token_bytes,
                                 std::vector<int32_t> end_ids) {
  std::string content = content_of(token_bytes, end_ids);
  if (const int32_t number = hold_known_vocabulary(content); number > 0) return number;
  // Without the lock, for it takes a tenth of a second: steps of the engine look grammars up
  // meanwhile.
  auto trie = std::make_shared<const TokenTrie>(std::move(token_bytes), std::move(end_ids));
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = vocabulary_numbers_.try_emplace(content, last_number_ + 1);
  if (fresh) vocabularies_[++last_number_] = {std::move(trie), std::move(content)};
  ++vocabularies_[at->second].holds;  // its own, or that of a thread that was faster
  return at->second;
}

int32_t GrammarStore::hold_known_vocabulary(const std::string& content) {
  const std::lock_guard lock(mutex_);
  const auto at = vocabulary_numbers_.find(content);
  if (at == vocabulary_numbers_.end()) return 0;
  ++vocabularies_[at->second].holds;
  return at->second;
}

void GrammarStore::release_vocabulary(int32_t number) {
  // Freed after the lock: it is large, and steps of the engine wait for the lock.
  decltype(vocabularies_)::node_type forgotten;
  const std::lock_guard lock(mutex_);
  const auto at = vocabularies_.find(number);
  if (at == vocabularies_.end() || --at->second.holds > 0) return;
  drop_grammars_of(number);
  vocabulary_numbers_.erase(at->second.content);
  forgotten = vocabularies_.extract(at);
}

void GrammarStore::drop_grammars_of(int32_t vocabulary) {
  for (auto at = kept_list_.begin(); at != kept_list_.end();) {
    const auto kept = at++;
    if (std::get<0>(*kept) == vocabulary) drop(kept);
  }
}

int32_t GrammarStore::hold_compiled(Entry& entry) {
  if (entry.holds++ == 0) {
    kept_now_ -= entry.grammar->bytes();
    kept_list_.erase(entry.kept);
  }
  return entry.number;
}

int32_t GrammarStore::hold(int32_t vocabulary, std::string_view text, const GrammarLimits& limits) {
  const Budget budget(limits);
  std::unique_lock lock(mutex_);
  const auto known = vocabularies_.find(vocabulary);
  if (known == vocabularies_.end())
    throw Error(ErrorCode::kUsage, format("There is no vocabulary %d.", vocabulary));
  const std::shared_ptr<const TokenTrie> trie = known->second.trie;
  // A text over the limit is not worth a copy.
  if (static_cast<int64_t>(text.size()) > limits.max_text_bytes) {
    lock.unlock();
    compile_grammar(text, trie, limits);
  }
  const Key key{vocabulary, limits.extensions, std::string(text)};
  for (;;) {
    const auto [at, fresh] = entries_.try_emplace(key);
    if (fresh) break;
    if (at->second.grammar != nullptr) return hold_compiled(at->second);
    // Another thread compiles it. When that fails, the entry is gone, and this thread tries:
    // limits and the reason to stop may have been the other's alone.
    compiled_.wait_for(lock, kLook);
    budget.check_time();
  }
  lock.unlock();
  std::shared_ptr<const Grammar> grammar;
  try {
    grammar = compile_grammar(text, trie, limits);
  } catch (...) {
    lock.lock();
    entries_.erase(key);
    compiled_.notify_all();
    throw;
  }
  lock.lock();
  const auto at = entries_.find(key);
  Entry& entry = at->second;
  entry.grammar = std::move(grammar);
  entry.number = ++last_number_;
  entry.holds = 1;
  by_number_.emplace(entry.number, at);
  compiled_.notify_all();
  return entry.number;
}

std::shared_ptr<const Grammar> GrammarStore::find(int32_t number) const {
  const std::lock_guard lock(mutex_);
  const auto at = by_number_.find(number);
  return at == by_number_.end() ? nullptr : at->second->second.grammar;
}

void GrammarStore::release(int32_t number) {
  const std::lock_guard lock(mutex_);
  const auto at = by_number_.find(number);
  if (at == by_number_.end()) return;
  Entry& entry = at->second->second;
  if (entry.holds == 0 || --entry.holds > 0) return;
  entry.kept = kept_list_.insert(kept_list_.end(), at->second->first);
  kept_now_ += entry.grammar->bytes();
  // Its thread may have ended, and the vocabulary with it, while the grammar was compiled.
  if (!vocabularies_.contains(std::get<0>(at->second->first))) return drop(entry.kept);
  drop_kept();
}

GrammarStore::Counts GrammarStore::counts() const {
  const std::lock_guard lock(mutex_);
  return {vocabularies_.size(), entries_.size()};
}

void GrammarStore::drop_kept() {
  while (kept_now_ > kept_bytes_ && !kept_list_.empty()) drop(kept_list_.begin());
}

void GrammarStore::drop(std::list<Key>::iterator kept) {
  const auto at = entries_.find(*kept);
  kept_now_ -= at->second.grammar->bytes();
  by_number_.erase(at->second.number);
  entries_.erase(at);
  kept_list_.erase(kept);
}

}  // namespace inferd
