// See grammar_holds.h.
#include "addon/grammar_holds.h"

#include "grammar/store.h"

namespace inferd {

GrammarHolds::~GrammarHolds() {
  for (auto [grammar, count] : holds_) {
    while (count-- > 0) GrammarStore::shared().release(grammar);
  }
}

void GrammarHolds::release(int32_t grammar) {
  const auto at = holds_.find(grammar);
  if (at == holds_.end()) return;
  if (--at->second == 0) holds_.erase(at);
  GrammarStore::shared().release(grammar);
}

}  // namespace inferd
