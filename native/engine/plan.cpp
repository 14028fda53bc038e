// See plan.h.
#include "engine/plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/error.h"
#include "engine/options.h"

namespace inferd {
namespace {

template <typename... Args>
[[noreturn]] void bad(const char* fmt, Args... args) {
  if constexpr (sizeof...(Args) == 0) {
    throw Error(ErrorCode::kBadPlan, std::string("Bad step plan: ") + fmt + ".");
  } else {
    char text[256];
    std::snprintf(text, sizeof text, fmt, args...);
    throw Error(ErrorCode::kBadPlan, std::string("Bad step plan: ") + text + ".");
  }
}

void check_range(int64_t value, int64_t min, int64_t max, const char* what) {
  if (value < min || value > max) {
    bad("%s is %lld, outside %lld..%lld", what, static_cast<long long>(value),
        static_cast<long long>(min), static_cast<long long>(max));
  }
}

void check_range(float value, float min, float max, const char* what) {
  if (!(value >= min && value <= max))
    bad("%s is %g, outside %g..%g", what, double{value}, double{min}, double{max});
}

// The type in which a field of the sampling record is compared with its range.
template <typename T>
using Checked = std::conditional_t<std::is_floating_point_v<T>, T, int64_t>;

// Greedy, and nothing else asked for.
bool is_plain_greedy(const SamplingRow& s) {
  bool plain = s.temperature < kGreedyBelow;
#define FIELD(type, name, least, most, off, role) \
  if (SamplingRole::role == SamplingRole::kEdits) plain = plain && s.name == type{off};
  INFERD_SAMPLING_FIELDS(FIELD)
#undef FIELD
  return plain;
}

}  // namespace

void check_sampling(const SamplingRow& s) {
#define FIELD(type, name, least, most, off, role) \
  check_range(Checked<type>{s.name}, Checked<type>{least}, Checked<type>{most}, #name);
  INFERD_SAMPLING_FIELDS(FIELD)
#undef FIELD
}

// Walks the words; every take is bounded by what is left, so that counts are believed only as far
// as the plan is long.
class PlanChecker::Cursor {
 public:
  explicit Cursor(std::span<const int32_t> words) : words_(words) {}

  template <typename T>
  std::span<const T> take(int64_t count, const char* section) {
    static_assert(sizeof(T) % 4 == 0 && std::is_trivially_copyable_v<T>);
    const int64_t words = static_cast<int64_t>(sizeof(T) / 4);
    if (count < 0 || count > (static_cast<int64_t>(words_.size()) - at_) / words) {
      bad("the section %s with %lld entries does not fit the plan", section,
          static_cast<long long>(count));
    }
    // T is made of int32 and float words only.
    const auto* p = reinterpret_cast<const T*>(words_.data() + at_);
    at_ += count * words;
    return {p, static_cast<size_t>(count)};
  }
  bool at_end() const { return at_ == static_cast<int64_t>(words_.size()); }

 private:
  std::span<const int32_t> words_;
  int64_t at_ = 0;
};

PlanChecker::PlanChecker(const PlanLimits& limits, std::function<bool(int32_t adapter)> knows)
    : limits_(limits),
      knows_adapter_(std::move(knows)),
      placed_(static_cast<size_t>(limits.adapter_places)),
      slots_(static_cast<size_t>(limits.max_slots)),
      prompts_(static_cast<size_t>(limits.max_slots)),
      draft_of_slot_(static_cast<size_t>(limits.max_slots)) {
  draft_.reserve(slots_.size());
  new_prompts_.reserve(slots_.size());
}

void PlanChecker::accept(std::span<const int32_t> words, ParsedPlan& plan) {
  draft_ = slots_;
  draft_placed_ = placed_;
  new_prompts_.clear();
  plan.adapter_runs.clear();
  plan.row_offsets.clear();
  plan.sample_offsets.clear();
  plan.sample_rows.clear();
  plan.sequences.clear();
  plan.prompts.clear();
  plan.logit_rows.clear();
  plan.pools.clear();
  plan.freed_constraints.clear();
  plan.new_constraints.clear();
  plan.constrained.clear();
  plan.drafts.clear();
  plan.draft_of.clear();
  plan.drafted = false;
  plan.max_row_count = plan.max_context = 0;
  plan.max_top = -1;
  plan.plain_greedy = true;

  Cursor at(words);
  const PlanHeader& h = plan.header = at.take<PlanHeader>(1, "header")[0];
  if (h.layout_version != kLayoutVersion)
    bad("its layout version is %d, this engine knows %d", h.layout_version, kLayoutVersion);
  if (h.words != static_cast<int64_t>(words.size()))
    bad("it says %d words and has %zu", h.words, words.size());
  check_range(int64_t{h.unread}, 0, INT32_MAX, "the number of steps without a result");
  check_range(int64_t{h.num_rows}, 0, limits_.max_slots, "the number of rows");
  check_range(int64_t{h.num_samples}, 0, limits_.max_slots, "the number of samples");
  check_range(int64_t{h.num_copies}, 0, limits_.num_blocks, "the number of copies");
  check_range(int64_t{h.num_swap_outs}, 0, limits_.num_swap_blocks, "the number of swaps out");
  check_range(int64_t{h.num_swap_ins}, 0, limits_.num_swap_blocks, "the number of swaps in");
#define SECTION(type, name, label) read_##name(at, plan);
  INFERD_PLAN_SECTIONS(SECTION)
#undef SECTION
  if (!at.at_end()) bad("words follow its last section");
  commit(plan);
}

PlanChecker::Slot& PlanChecker::live_slot(int32_t slot, const char* what) {
  if (slot < 0 || slot >= limits_.max_slots)
    bad("%s names slot %d of %d", what, slot, limits_.max_slots);
  Slot& s = draft_[static_cast<size_t>(slot)];
  if (!s.live) bad("%s names slot %d, which holds no sequence", what, slot);
  return s;
}

void PlanChecker::read_freed(Cursor& at, ParsedPlan& plan) {
  for (const int32_t slot : at.take<int32_t>(plan.header.num_freed, "freed")) {
    Slot& s = live_slot(slot, "a freed entry");
    if (s.constrained) plan.freed_constraints.push_back(slot);
    s = Slot{};
  }
}

// A place is given on only when no sequence is left that uses what it holds.
void PlanChecker::read_adapters(Cursor& at, ParsedPlan& plan) {
  check_range(int64_t{plan.header.num_adapters}, 0, limits_.adapter_places,
              "the number of adapters placed");
  plan.adapters = at.take<AdapterPlacement>(plan.header.num_adapters, "adapters");
  for (const AdapterPlacement& p : plan.adapters) {
    check_range(int64_t{p.place}, 0, limits_.adapter_places - 1, "the place of an adapter");
    if (!knows_adapter_(p.adapter)) bad("it places adapter %d, which is not loaded", p.adapter);
    for (const Slot& s : draft_)
      if (s.live && s.adapter == p.place)
        bad("it places adapter %d in place %d, which a sequence uses", p.adapter, p.place);
    draft_placed_[static_cast<size_t>(p.place)] = true;
  }
}

void PlanChecker::read_new_slots(Cursor& at, ParsedPlan& plan) {
  const int32_t count = plan.header.num_new_slots;
  check_range(int64_t{count}, 0, limits_.max_slots, "the number of new slots");
  for (int32_t i = 0; i < count; ++i) {
    const NewSlotFixed& n = at.take<NewSlotFixed>(1, "newSlots")[0];
    const auto tokens = at.take<int32_t>(n.num_tokens, "tokens");
    bool lists = false;
    for (int32_t list = 0; list < kSlotLists; ++list)
      lists |= read_list(at, static_cast<SlotListIndex>(list), n.list_counts[list]);
    check_new_slot(n, tokens, lists);
    if (n.sampling.grammar == 0) continue;
    const auto prompt = static_cast<size_t>(std::min(n.prompt_len, n.num_tokens));
    plan.new_constraints.push_back({n.slot, n.fork_of, n.sampling.grammar, tokens.subspan(prompt)});
  }
}

bool PlanChecker::read_list(Cursor& at, SlotListIndex index, int32_t count) {
  const SlotListKind& kind = kSlotListKinds[index];
  if (count < 0 || count > kind.most)
    bad("the number of %s is %d, outside 0..%d", kind.entries, count, kind.most);
  const auto words = at.take<int32_t>(int64_t{count} * kind.words, kind.name);
  for (size_t i = 0; i < words.size(); i += static_cast<size_t>(kind.words)) {
    if (words[i] < 0 || words[i] >= limits_.vocab_size)
      bad("a %s id is %d, outside 0..%d", kind.entry, words[i], limits_.vocab_size - 1);
    if (index == kBiasList) {
      float value = 0;
      std::memcpy(&value, &words[i + 1], sizeof value);
      check_range(value, -1e4f, 1e4f, "a logit bias");
    }
  }
  return count > 0;
}

void PlanChecker::check_new_slot(const NewSlotFixed& n, std::span<const int32_t> tokens,
                                 bool lists) {
  if (n.slot < 0 || n.slot >= limits_.max_slots)
    bad("a new slot has the number %d of %d", n.slot, limits_.max_slots);
  Slot& s = draft_[static_cast<size_t>(n.slot)];
  if (s.live) bad("the new slot %d still holds a sequence", n.slot);
  int64_t length = static_cast<int64_t>(tokens.size());
  if (n.fork_of >= 0) {
    const Slot& from = live_slot(n.fork_of, "a fork");
    length = from.known;
    if (from.known != from.most)
      bad("the fork in slot %d is of slot %d, whose length is not known", n.slot, n.fork_of);
    if (!tokens.empty()) bad("the fork in slot %d brings tokens of its own", n.slot);
  } else if (n.fork_of != -1) {
    bad("the new slot %d has forkOf %d", n.slot, n.fork_of);
  }
  check_range(length, 1, limits_.max_len, "the history length of a new slot");
  check_range(int64_t{n.prompt_len}, 0, length, "the prompt length of a new slot");
  check_range(int64_t{n.adapter}, kNoAdapter, limits_.adapter_places - 1, "the adapter's place");
  if (n.adapter != kNoAdapter && !draft_placed_[static_cast<size_t>(n.adapter)])
    bad("the new slot %d uses place %d, which holds no adapter", n.slot, n.adapter);
  check_sampling(n.sampling);
  for (const int32_t id : tokens) check_range(int64_t{id}, 0, limits_.vocab_size - 1, "a token id");
  s = {.live = true,
       .sequence = ++num_sequences_,
       .known = static_cast<int32_t>(length),
       .most = static_cast<int32_t>(length),
       .prompt_len = n.prompt_len,
       .adapter = n.adapter,
       .prompt_logprobs = n.sampling.prompt_logprobs,
       .top_logprobs = n.sampling.top_logprobs,
       .plain_greedy = !lists && is_plain_greedy(n.sampling),
       .constrained = n.sampling.grammar != 0};
  if (n.sampling.prompt_logprobs >= 0) {
    new_prompts_.push_back(
        {n.slot, n.fork_of,
         tokens.first(std::min<size_t>(tokens.size(), static_cast<size_t>(n.prompt_len)))});
  }
}

void PlanChecker::read_block_sets(Cursor& at, ParsedPlan& plan) {
  plan.block_sets = at.take<BlockSet>(plan.header.num_block_sets, "blockSets");
  for (const BlockSet& b : plan.block_sets) {
    Slot& s = live_slot(b.slot, "a block set");
    check_range(int64_t{b.block}, 0, limits_.num_blocks - 1, "a block");
    check_range(int64_t{b.index}, 0, limits_.max_blocks - 1, "an index in a block table");
    if (b.index > s.num_blocks)
      bad("the block table of slot %d gets index %d after %d blocks", b.slot, b.index,
          s.num_blocks);
    s.num_blocks = std::max(s.num_blocks, b.index + 1);
  }
}

void PlanChecker::read_swap_outs(Cursor& at, ParsedPlan& plan) {
  plan.swap_outs = at.take<BlockCopy>(plan.header.num_swap_outs, "swapOuts");
  for (const BlockCopy& c : plan.swap_outs) {
    check_range(int64_t{c.src}, 0, limits_.num_blocks - 1, "the source of a swap out");
    check_range(int64_t{c.dst}, 0, limits_.num_swap_blocks - 1, "the destination of a swap out");
  }
}

void PlanChecker::read_copies(Cursor& at, ParsedPlan& plan) {
  plan.copies = at.take<BlockCopy>(plan.header.num_copies, "copies");
  for (const BlockCopy& c : plan.copies) {
    check_range(int64_t{c.src}, 0, limits_.num_blocks - 1, "the source of a copy");
    check_range(int64_t{c.dst}, 0, limits_.num_blocks - 1, "the destination of a copy");
  }
}

void PlanChecker::read_swap_ins(Cursor& at, ParsedPlan& plan) {
  plan.swap_ins = at.take<BlockCopy>(plan.header.num_swap_ins, "swapIns");
  for (const BlockCopy& c : plan.swap_ins) {
    check_range(int64_t{c.src}, 0, limits_.num_swap_blocks - 1, "the source of a swap in");
    check_range(int64_t{c.dst}, 0, limits_.num_blocks - 1, "the destination of a swap in");
  }
}

// Its last token of history, and drafts behind it.
void PlanChecker::check_from_device(const PlanRow& r, const Slot& s) const {
  if (r.start < s.most - 1) {
    bad("a row of slot %d starts at %d at most, and its history may have %d tokens", r.slot,
        r.start, s.most);
  }
  if (r.count > limits_.max_sample)
    bad("a row of slot %d computes %d tokens from the device, more than %d", r.slot, r.count,
        limits_.max_sample);
  if (r.count > 1 + s.drafts)
    bad("a row of slot %d has %d drafts, and %d were asked for", r.slot, r.count - 1, s.drafts);
  if (r.flags != kRowFromDevice)
    bad("a row of slot %d starts from the device and has the flags %d", r.slot, r.flags);
}

namespace {

void add_adapter_run(ParsedPlan& plan, int32_t first, int32_t count, int32_t place) {
  if (place == kNoAdapter) return;
  std::vector<AdapterRun>& runs = plan.adapter_runs;
  if (!runs.empty() && runs.back().place == place &&
      runs.back().first + runs.back().count == first) {
    runs.back().count += count;
  } else {
    runs.push_back({first, count, place});
  }
}

}  // namespace

void PlanChecker::read_rows(Cursor& at, ParsedPlan& plan) {
  plan.rows = at.take<PlanRow>(plan.header.num_rows, "rows");
  int64_t total = 0;
  int64_t raw = 0;
  for (const PlanRow& r : plan.rows) {
    Slot& s = live_slot(r.slot, "a row");
    if (s.in_row) bad("slot %d has two rows", r.slot);
    s.in_row = true;
    check_range(int64_t{r.count}, 1, limits_.max_batch_tokens, "the count of a row");
    const int64_t end = int64_t{r.start} + r.count;
    const bool from_device = (r.flags & kRowFromDevice) != 0;
    if (from_device) {
      check_from_device(r, s);
    } else if (r.start < 0 || end > s.known) {
      bad("a row of slot %d computes [%d, %lld) of a history of %d tokens", r.slot, r.start,
          static_cast<long long>(end), s.known);
    }
    if (end > limits_.max_len)
      bad("a row of slot %d ends at %lld, and a sequence has %d tokens at most", r.slot,
          static_cast<long long>(end), limits_.max_len);
    if (end > int64_t{s.num_blocks} * limits_.block_size) {
      bad("a row of slot %d ends at %lld and its %d blocks hold %lld tokens", r.slot,
          static_cast<long long>(end), s.num_blocks,
          static_cast<long long>(int64_t{s.num_blocks} * limits_.block_size));
    }
    if ((r.flags &
         ~(kRowRawLogits | kRowPromptLogprobs | kRowFromDevice | kRowPoolSum | kRowPool)) != 0)
      bad("a row of slot %d has the flags %d", r.slot, r.flags);
    if ((r.flags & kRowPromptLogprobs) != 0 && s.prompt_logprobs < 0)
      bad("slot %d did not ask for prompt logprobs", r.slot);
    plan.row_offsets.push_back(static_cast<int32_t>(total));
    read_pool(r, s, plan);
    add_adapter_run(plan, static_cast<int32_t>(total), r.count, s.adapter);
    total += r.count;
    if ((r.flags & kRowRawLogits) != 0) raw += r.count;
    check_range(raw * limits_.vocab_size * 4, 0, kMaxRawLogitBytes,
                "the size of all raw logits in bytes");
    if (total > limits_.max_batch_tokens)
      bad("its rows have more than %d tokens", limits_.max_batch_tokens);
    plan.max_row_count = std::max(plan.max_row_count, r.count);
    plan.max_context = std::max(plan.max_context, static_cast<int32_t>(end));
  }
  plan.row_offsets.push_back(static_cast<int32_t>(total));
  if (total != plan.header.num_tokens)
    bad("it says %d tokens and its rows have %lld", plan.header.num_tokens,
        static_cast<long long>(total));
}

// Rows that are summed up follow each other without a gap; one from position 0 begins anew.
void PlanChecker::read_pool(const PlanRow& r, Slot& s, ParsedPlan& plan) const {
  const bool sums = (r.flags & kRowPoolSum) != 0, ends = (r.flags & kRowPool) != 0;
  if (!sums && !ends) return;
  const int32_t first = plan.row_offsets.back(), end = r.start + r.count;
  if (!sums) {
    plan.pools.push_back({r.slot, first + r.count - 1, 1, true, 1});
    return;
  }
  if (r.start != 0 && r.start != s.summed)
    bad("a row of slot %d adds tokens from %d on to the sum of %d", r.slot, r.start, s.summed);
  s.summed = end;
  plan.pools.push_back({r.slot, first, r.count, r.start == 0, ends ? end : 0});
}

void PlanChecker::read_samples(Cursor& at, ParsedPlan& plan) {
  plan.samples = at.take<PlanSample>(plan.header.num_samples, "samples");
  for (const PlanSample& p : plan.samples) {
    check_range(int64_t{p.row}, 0, static_cast<int64_t>(plan.rows.size()) - 1,
                "the row of a sample");
    const PlanRow& row = plan.rows[static_cast<size_t>(p.row)];
    Slot& s = live_slot(p.slot, "a sample");
    if (s.sampled > 0) bad("slot %d is sampled twice", p.slot);
    check_sample(p, row, s);
    s.sampled = p.count;
    s.drafts = p.drafts;
    plan.drafted = plan.drafted || p.count > 1;
    plan.draft_of.push_back(-1);
    if (p.drafts > 0) {
      const int32_t first = plan.row_offsets[static_cast<size_t>(p.row)];
      plan.drafts.push_back({.slot = p.slot, .count = p.drafts, .first = first});
    }
    if (s.constrained) plan.constrained.push_back(plan.sequences.size());
    plan.max_top = std::max(plan.max_top, s.top_logprobs);
    plan.plain_greedy = plan.plain_greedy && s.plain_greedy;
    const int32_t end = plan.row_offsets[static_cast<size_t>(p.row) + 1];
    plan.sample_offsets.push_back(static_cast<int32_t>(plan.sample_rows.size()));
    for (int32_t i = end - p.count; i < end; ++i) plan.sample_rows.push_back(i);
    plan.sequences.push_back(s.sequence);
  }
  plan.sample_offsets.push_back(static_cast<int32_t>(plan.sample_rows.size()));
}

void PlanChecker::check_sample(const PlanSample& p, const PlanRow& row, const Slot& s) const {
  check_range(int64_t{p.count}, 1, limits_.max_sample, "the count of a sample");
  check_range(int64_t{p.drafts}, 0, limits_.max_sample - 1, "the number of drafts");
  const int32_t end = row.start + row.count;
  if ((row.flags & kRowFromDevice) != 0) {
    if (p.slot != row.slot)
      bad("slot %d is sampled after a row of slot %d that starts from the device", p.slot,
          row.slot);
    if (p.count != row.count)
      bad("slot %d gets %d tokens after a row of %d from the device", p.slot, p.count, row.count);
  } else {
    if (s.known != end || s.most != end) {
      bad("slot %d has %d tokens and is sampled after a row that ends at %d", p.slot, s.most, end);
    }
    if (p.count != 1) bad("slot %d gets %d tokens after a row without drafts", p.slot, p.count);
  }
  if (int64_t{s.most} + p.count > int64_t{limits_.max_len} + 1)
    bad("slot %d is sampled with %d tokens, the most a sequence may have", p.slot, s.most);
  if (p.drafts == 0 || !limits_.drafts_in_blocks) return;
  // The last of its tokens, and all drafts but the last, get keys and values.
  const int64_t drafted = int64_t{s.most} + p.count - 1 + p.drafts;
  if (drafted > limits_.max_len || drafted > int64_t{s.num_blocks} * limits_.block_size)
    bad("slot %d drafts up to %lld, and a sequence has %d tokens at most and its %d blocks hold "
        "%lld",
        p.slot, static_cast<long long>(drafted), limits_.max_len, s.num_blocks,
        static_cast<long long>(int64_t{s.num_blocks} * limits_.block_size));
}

void PlanChecker::settle(const ParsedPlan& plan, size_t index, int32_t count) {
  const PlanSample& sample = plan.samples[index];
  Slot& s = slots_[static_cast<size_t>(sample.slot)];
  if (!s.live || s.sequence != plan.sequences[index]) return;  // freed meanwhile
  s.known += count - 1;
  s.most -= sample.count - count;
}

void PlanChecker::commit(ParsedPlan& plan) {
  for (const NewPrompt& n : new_prompts_) {
    std::vector<int32_t>& prompt = prompts_[static_cast<size_t>(n.slot)];
    if (n.fork_of >= 0) {
      prompt = prompts_[static_cast<size_t>(n.fork_of)];
    } else {
      prompt.assign(n.tokens.begin(), n.tokens.end());
    }
  }
  for (size_t i = 0; i < draft_.size(); ++i) {
    if (draft_[i].prompt_logprobs < 0 && !prompts_[i].empty())
      std::vector<int32_t>().swap(prompts_[i]);
  }
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& r = plan.rows[i];
    const Slot& s = draft_[static_cast<size_t>(r.slot)];
    const std::vector<int32_t>& prompt = prompts_[static_cast<size_t>(r.slot)];
    for (int32_t j = 0; j < r.count; ++j) {
      const int32_t batch_row = plan.row_offsets[i] + j;
      const int32_t next = r.start + j + 1;
      if ((r.flags & kRowRawLogits) != 0)
        plan.logit_rows.push_back({r.slot, r.start + j, batch_row});
      if ((r.flags & kRowPromptLogprobs) == 0 ||
          next >= std::min<int64_t>(s.prompt_len, static_cast<int64_t>(prompt.size())))
        continue;
      plan.prompts.push_back(
          {r.slot, next, prompt[static_cast<size_t>(next)], batch_row, s.prompt_logprobs});
    }
  }
  plan.pure_decode = plan.max_row_count == 1 && plan.prompts.empty() && plan.logit_rows.empty() &&
                     plan.pools.empty() && plan.samples.size() == plan.rows.size();
  for (size_t i = 0; i < plan.samples.size() && plan.pure_decode; ++i)
    plan.pure_decode = plan.samples[i].row == static_cast<int32_t>(i);
  // So those that still want a draft are the first ones.
  std::stable_sort(plan.drafts.begin(), plan.drafts.end(),
                   [](const DraftRow& a, const DraftRow& b) { return a.count > b.count; });
  std::vector<int32_t>& of_slot = draft_of_slot_;
  for (size_t i = 0; i < plan.drafts.size(); ++i)
    of_slot[static_cast<size_t>(plan.drafts[i].slot)] = static_cast<int32_t>(i);
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const PlanSample& p = plan.samples[i];
    if (p.drafts > 0) plan.draft_of[i] = of_slot[static_cast<size_t>(p.slot)];
  }
  for (Slot& s : draft_) {
    s.known += s.sampled > 0 ? 1 : 0;
    s.most += s.sampled;
    s.in_row = false;
    s.sampled = 0;
  }
  slots_.swap(draft_);
  placed_.swap(draft_placed_);
}

}  // namespace inferd
