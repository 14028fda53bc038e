// The lists that a sequence brings into its slot beside its tokens, such as its logit bias: what
// kinds there are, and their device tables. A new kind is a line of kSlotListKinds and one of
// SLOT_LISTS in actors/messages/step.ts, and whoever reads it; plans, checks and slot tables carry
// every kind of the table.
#pragma once
#include <cstdint>
#include <iterator>

namespace inferd {

struct SlotListKind {
  const char* name;   // as in TypeScript
  const char* entry;  // for sentences about one, and about the number of them
  const char* entries;
  int32_t words;  // of an entry; the first is a token id
  int32_t most;   // entries of a slot
};

// In the order of a plan.
enum SlotListIndex : int32_t {
  kBiasList,    // (id, f32): added to the logit
  kMaskedList,  // ids that cannot be sampled while fewer than min_tokens were generated
  kSlotLists
};
constexpr SlotListKind kSlotListKinds[] = {
    {"bias", "logit bias", "logit biases", 2, 4096},
    {"masked", "masked", "masked ids", 1, 320},  // 256 stop ids, and end-of-sequence ids
};
static_assert(std::size(kSlotListKinds) == kSlotLists);

// One kind, of all slots; device memory. Entries are stored by column: word w of a slot's entries
// is an array of its own.
struct SlotList {
  int32_t* words;       // [max_slots, entry_words, most]
  int32_t* counts;      // [max_slots] entries in use
  int32_t entry_words;  // as of its kind
  int32_t most;         // entries of a slot

  // Word `word` of a slot's entries.
  constexpr int32_t* column(int64_t slot, int32_t word) const {
    return words + (slot * entry_words + word) * most;
  }
};

}  // namespace inferd
