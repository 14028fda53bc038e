// See grammar_holds.h.
#include "addon/grammar_holds.h"

#include "grammar/store.h"

namespace inferd {

GrammarHolds::~GrammarHolds() {
  for (auto [grammar, count] : holds_) {
    while (count-- > 0) GrammarStore::shared().release(grammar);
  }
  for (const int32_t vocabulary : vocabularies_)
    GrammarStore::shared().release_vocabulary(vocabulary);
}

void GrammarHolds::add_vocabulary(int32_t vocabulary) {
  if (!vocabularies_.insert(vocabulary).second)
    GrammarStore::shared().release_vocabulary(vocabulary);
}

void GrammarHolds::release(int32_t grammar) {
  const auto at = holds_.find(grammar);
  if (at == holds_.end()) return;
  if (--at->second == 0) holds_.erase(at);
  GrammarStore::shared().release(grammar);
}

}  // namespace inferd
