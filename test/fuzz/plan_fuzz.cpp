// Step plans: whatever the checker accepts touches only slots, blocks, positions and tokens that
// exist. The promises are checked against a picture of the slots that this file keeps by itself.
//
// An input is int32 words: plans one after the other, each as long as its own word count says. How
// many tokens the samples of a plan give is in the bits of its step number. The checker is told as
// late as an engine may: when the plan after the next is there.
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "engine/plan.h"
#include "target.h"

namespace inferd {
namespace {

constexpr PlanLimits kLimits{.max_slots = 4,
                             .max_len = 64,
                             .max_blocks = 4,
                             .block_size = 16,
                             .num_blocks = 12,
                             .num_swap_blocks = 6,
                             .max_batch_tokens = 48,
                             .vocab_size = 100,
                             .max_sample = 4,
                             .adapter_places = 2};
constexpr int32_t kAdapters = 3;  // 0 .. 2 are loaded

struct Picture {
  bool live = false;
  int32_t adapter = kNoAdapter;
  int32_t length = 0;  // as the device has it
  std::vector<int32_t> blocks;
};

bool below(int32_t value, int32_t limit) { return value >= 0 && value < limit; }

struct Pictures {
  std::vector<Picture> slots = std::vector<Picture>(static_cast<size_t>(kLimits.max_slots));
  std::vector<bool> placed = std::vector<bool>(static_cast<size_t>(kLimits.adapter_places));
};

// Applies an accepted plan to the pictures, reading its words in the order of
// actors/messages/step.ts.
class Replay {
 public:
  Replay(Pictures& pictures, const std::vector<int32_t>& words)
      : slots_(pictures.slots), placed_(pictures.placed), words_(words) {}

  void run(const ParsedPlan& plan) {
    const PlanHeader& h = plan.header;
    at_ = sizeof(PlanHeader) / 4;
    for (int32_t i = 0; i < h.num_freed; ++i) slot(next()) = Picture{};
    for (int32_t i = 0; i < h.num_adapters; ++i) adapter();
    for (int32_t i = 0; i < h.num_new_slots; ++i) new_slot();
    for (int32_t i = 0; i < h.num_block_sets; ++i) block_set();
    for (int32_t i = 0; i < h.num_swap_outs; ++i)
      promise(below(next(), kLimits.num_blocks) && below(next(), kLimits.num_swap_blocks),
              "swaps out stay in the pools");
    for (int32_t i = 0; i < h.num_copies; ++i)
      promise(below(next(), kLimits.num_blocks) && below(next(), kLimits.num_blocks),
              "copies stay in the pool");
    for (int32_t i = 0; i < h.num_swap_ins; ++i)
      promise(below(next(), kLimits.num_swap_blocks) && below(next(), kLimits.num_blocks),
              "swaps in stay in the pools");
    int32_t tokens = 0;
    for (int32_t i = 0; i < h.num_rows; ++i) tokens += row();
    promise(tokens == h.num_tokens && tokens <= kLimits.max_batch_tokens, "rows fit the batch");
    for (int32_t i = 0; i < h.num_samples; ++i) sample(plan);
    promise(at_ == words_.size(), "nothing follows the plan");
    views(plan, tokens);
  }

  std::vector<int32_t> given;  // tokens of each sample

 private:
  int32_t next() {
    promise(at_ < words_.size(), "sections lie inside the plan");
    return words_[at_++];
  }
  Picture& slot(int32_t index) {
    promise(below(index, kLimits.max_slots), "slots exist");
    return slots_[static_cast<size_t>(index)];
  }

  void adapter() {
    const int32_t place = next();
    promise(below(place, kLimits.adapter_places) && below(next(), kAdapters),
            "places hold adapters that are loaded");
    for (const Picture& s : slots_)
      promise(!s.live || s.adapter != place, "no sequence uses a place that changes");
    placed_[static_cast<size_t>(place)] = true;
  }

  void new_slot() {
    NewSlotFixed n{};
    for (size_t i = 0; i < sizeof n / 4; ++i) {
      const int32_t word = next();
      std::memcpy(reinterpret_cast<char*>(&n) + 4 * i, &word, 4);
    }
    const int32_t length = n.fork_of >= 0 ? slot(n.fork_of).length : n.num_tokens;
    Picture& s = slot(n.slot);
    promise(!s.live, "a new slot was free");
    for (int32_t i = 0; i < n.num_tokens; ++i)
      promise(below(next(), kLimits.vocab_size), "tokens are in the vocabulary");
    for (int32_t list = 0; list < kSlotLists; ++list) {
      for (int32_t i = 0; i < n.list_counts[list]; ++i) {
        promise(below(next(), kLimits.vocab_size), "entries of lists are in the vocabulary");
        for (int32_t w = 1; w < kSlotListKinds[list].words; ++w) next();
      }
    }
    promise(length >= 1 && length <= kLimits.max_len, "histories have a length");
    promise(n.adapter == kNoAdapter || (below(n.adapter, kLimits.adapter_places) &&
                                        placed_[static_cast<size_t>(n.adapter)]),
            "sequences use places that hold an adapter");
    s = {.live = true, .adapter = n.adapter, .length = length, .blocks = {}};
  }

  void block_set() {
    Picture& s = slot(next());
    const int32_t index = next();
    const int32_t block = next();
    promise(s.live && below(index, kLimits.max_blocks) && below(block, kLimits.num_blocks),
            "block sets name a live slot and a block of the pool");
    promise(index <= static_cast<int32_t>(s.blocks.size()), "block tables have no holes");
    if (index == static_cast<int32_t>(s.blocks.size())) s.blocks.push_back(block);
    s.blocks[static_cast<size_t>(index)] = block;
  }

  int32_t row() {
    const Picture& s = slot(next());
    const int32_t planned = next();
    const int32_t count = next();
    const bool from_device = (next() & kRowFromDevice) != 0;
    const int32_t start = from_device ? s.length - 1 : planned;
    promise(s.live && start >= 0 && count > 0 && start <= planned, "rows start in the history");
    promise(start + count <= kLimits.max_len && (from_device || start + count <= s.length),
            "rows end in the history, or their drafts in its table");
    promise(planned + count <= static_cast<int32_t>(s.blocks.size()) * kLimits.block_size,
            "rows have blocks for their keys");
    return count;
  }

  void sample(const ParsedPlan& plan) {
    const int32_t row = next();
    promise(below(row, plan.header.num_rows), "samples have a row");
    Picture& s = slot(next());
    const int32_t count = next();
    promise(count >= 1 && count <= plan.rows[static_cast<size_t>(row)].count,
            "the row has a position for every sampled token");
    promise(below(next(), kLimits.max_sample), "drafts have a place in the next row");
    promise(s.live && s.length + count <= kLimits.max_len + 1, "sampled tokens have a place");
    given.push_back(1 + (plan.header.step >> (2 * given.size() % 30) & 3) % count);
    s.length += given.back();
  }

  static void views(const ParsedPlan& plan, int32_t tokens) {
    promise(plan.row_offsets.size() == plan.rows.size() + 1 && plan.row_offsets.back() == tokens,
            "offsets cover the rows");
    promise(plan.sample_offsets.size() == plan.samples.size() + 1 &&
                plan.sample_offsets.back() == static_cast<int32_t>(plan.sample_rows.size()),
            "offsets cover the samples");
    for (const int32_t r : plan.sample_rows) promise(below(r, tokens), "sampled rows exist");
    for (const LogitRow& r : plan.logit_rows)
      promise(below(r.batch_row, tokens), "raw logits have a row");
    for (const PromptTarget& t : plan.prompts) {
      promise(below(t.batch_row, tokens) && below(t.token, kLimits.vocab_size) && t.position > 0 &&
                  t.position < kLimits.max_len && t.top <= 20,
              "prompt logprobs have a row and a token");
    }
  }

  std::vector<Picture>& slots_;
  std::vector<bool>& placed_;
  const std::vector<int32_t>& words_;
  size_t at_ = 0;
};

}  // namespace
}  // namespace inferd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd;
  constexpr size_t kHeaderWords = sizeof(PlanHeader) / 4;
  constexpr size_t kWordsAt = offsetof(PlanHeader, words) / 4;
  std::vector<int32_t> all(size / 4);
  if (!all.empty()) std::memcpy(all.data(), data, 4 * all.size());
  PlanChecker checker(kLimits, [](int32_t adapter) { return below(adapter, kAdapters); });
  Pictures pictures;
  struct InFlight {
    std::vector<int32_t> words;  // `plan` points into them
    ParsedPlan plan;
    std::vector<int32_t> given;
  };
  std::deque<InFlight> in_flight;
  for (size_t at = 0; at + kHeaderWords <= all.size();) {
    const size_t left = all.size() - at;
    const int32_t said = all[at + kWordsAt];
    const bool fits =
        said >= static_cast<int32_t>(kHeaderWords) && static_cast<size_t>(said) <= left;
    const size_t count = fits ? static_cast<size_t>(said) : left;
    // An allocation of its own, so that a read beyond the plan is seen.
    InFlight step;
    std::vector<int32_t>& words = step.words;
    words.assign(all.begin() + static_cast<ptrdiff_t>(at),
                 all.begin() + static_cast<ptrdiff_t>(at + count));
    words[0] = kLayoutVersion;
    words[kWordsAt] = static_cast<int32_t>(count);
    at += count;
    if (in_flight.size() == 2) {
      const InFlight& oldest = in_flight.front();
      for (size_t i = 0; i < oldest.given.size(); ++i)
        checker.settle(oldest.plan, i, oldest.given[i]);
      in_flight.pop_front();
    }
    if (!accepted(ErrorCode::kBadPlan, [&] { checker.accept(words, step.plan); })) continue;
    Replay replay(pictures, words);
    replay.run(step.plan);
    step.given = replay.given;
    in_flight.push_back(std::move(step));
  }
  return 0;
}
