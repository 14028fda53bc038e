// The grammars and vocabularies that one JavaScript thread holds in GrammarStore. They are given
// back when the thread ends: a thread that is terminated releases nothing itself, and the store is
// the process's.
//
// Thread: the JavaScript thread whose holds they are.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

namespace inferd {

class GrammarHolds {
 public:
  GrammarHolds() = default;
  GrammarHolds(const GrammarHolds&) = delete;
  GrammarHolds& operator=(const GrammarHolds&) = delete;
  ~GrammarHolds();

  // Takes over a hold that GrammarStore::hold gave.
  void add(int32_t grammar) { ++holds_[grammar]; }
  // Gives one back. Nothing happens for a grammar that is not held here.
  void release(int32_t grammar);

  // Takes over a hold that GrammarStore::vocabulary gave. A thread holds a vocabulary once, to its
  // end.
  void add_vocabulary(int32_t vocabulary);

 private:
  std::unordered_map<int32_t, int64_t> holds_;  // how many, by grammar
  std::unordered_set<int32_t> vocabularies_;
};

}  // namespace inferd
