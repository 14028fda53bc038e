// See table_builder.h.
#include "grammar/table_builder.h"

#include <algorithm>
#include <map>

#include "grammar/closed_tables.h"
#include "grammar/compile/follow.h"
#include "grammar/readings.h"
#include "grammar/table_cache.h"
#include "grammar/table_parts.h"

namespace inferd {
namespace {

// Nodes of the vocabulary that all walks of one grammar may visit, those of closed parts apart. What
// a walk finds from a position with few next bytes is found in some 10 us while answering, too:
// that is not worth more than a few milliseconds of compiling.
constexpr int64_t kMaxVisits = 3'000'000;
constexpr int64_t kMaxNarrowVisits = 500'000;
// So many next bytes make a position wide.
constexpr size_t kWideBytes = 20;

// A walk of so few nodes is done again while answering.
constexpr int64_t kFewVisits = 48;

// One walk through the vocabulary. As long as there is one reading, in the part where the walk began,
// only its position is followed, which takes a fraction of the time; readings are made where a
// call or an end comes.
class PositionWalk {
 public:
  PositionWalk(const Automaton& automaton, const TokenTrie& vocabulary,
               const std::vector<ByteSet>& follow, int32_t position, TableParts& parts)
      : automaton_(automaton),
        trie_(vocabulary.trie()),
        part_(automaton.positions[static_cast<size_t>(position)].part),
        follow_(follow[static_cast<size_t>(part_)]),
        readings_(automaton, position),
        first_(readings_.next_bytes()),
        start_(position),
        parts_(parts) {}

  // False when the walk visits too many nodes, or when there are too many tails.
  bool run(int64_t& visits, Budget& budget) {
    for (uint32_t i = 1; i < trie_.size();) {
      while (!path_.empty() && path_.back().end <= i) leave_node();
      const ByteTrie::Node& node = trie_.node(i);
      if ((path_.empty() && !first_[node.byte]) || !enter_node(node)) {
        i = node.end;
        continue;
      }
      budget.tick();
      if (++visits > kMaxVisits) return false;
      if (!judge(i)) return false;
      ++i;
    }
    return true;
  }

 private:
  static constexpr int32_t kReadings = -1;

  // A node that was read: the position behind it, or kReadings.
  struct Step {
    uint32_t end;
    int32_t position;
    uint8_t byte;
  };

  bool follows_position(int32_t position) const {
    const Position& p = automaton_.positions[static_cast<size_t>(position)];
    return p.calls == p.calls_end && automaton_.parts[static_cast<size_t>(part_)].deterministic;
  }

  bool enter_node(const ByteTrie::Node& node) {
    const int32_t at = path_.empty() ? start_ : path_.back().position;
    if (at == kReadings || !follows_position(at)) return enter_with_readings(node);
    const int32_t next = automaton_.step(at, node.byte);
    if (next < 0) return false;
    const Position& p = automaton_.positions[static_cast<size_t>(next)];
    if (p.final || !follows_position(next)) return enter_with_readings(node);
    path_.push_back({node.end, next, node.byte});
    return true;
  }

  bool enter_with_readings(const ByteTrie::Node& node) {
    const bool begun = !path_.empty() && path_.back().position == kReadings;
    if (!begun) {
      for (const Step& step : path_) readings_.push(step.byte);
    }
    const bool good = readings_.push(node.byte);
    if (good) {
      path_.push_back({node.end, kReadings, node.byte});
    } else if (!begun) {
      readings_.reset();
    }
    return good;
  }

  void leave_node() {
    const bool with_readings = path_.back().position == kReadings;
    path_.pop_back();
    if (!with_readings) return;
    if (path_.empty() || path_.back().position != kReadings) {
      readings_.reset();
    } else {
      readings_.pop();
    }
  }

  bool judge(uint32_t node) {
    const std::span<const int32_t> ids = trie_.ids(node);
    const int32_t position = path_.back().position;
    if (position != kReadings) {
      if (ids.empty()) return true;
      if (automaton_.endangered[static_cast<size_t>(position)]) {
        parts_.unsure(ids);
      } else {
        parts_.allow(ids);
      }
      return true;
    }
    const Readings::Fate fate = ids.empty() ? Readings::Fate::kNone : readings_.fate();
    if (fate == Readings::Fate::kCertain) parts_.allow(ids);
    if (fate == Readings::Fate::kUnsure) parts_.unsure(ids);
    return !readings_.left() || parts_.leave(node, path_.size(), &follow_);
  }

  const Automaton& automaton_;
  const ByteTrie& trie_;
  const int32_t part_;
  const ByteSet& follow_;
  Readings readings_;
  const ByteSet first_;
  const int32_t start_;
  TableParts& parts_;
  std::vector<Step> path_;
};

class TableBuilder {
 public:
  TableBuilder(const Automaton& automaton, const TokenTrie& vocabulary, Budget& budget)
      : automaton_(automaton),
        vocabulary_(vocabulary),
        budget_(budget),
        follow_(follow_bytes(automaton, budget)),
        tables_(automaton.positions.size()) {}

  std::vector<std::shared_ptr<const TokenTable>> run() {
    build_closed_tables(automaton_, vocabulary_, budget_, tables_);
    const auto [wide, narrow] = by_width();
    build(wide, kMaxVisits);
    build(narrow, visits_ + kMaxNarrowVisits);
    return std::move(tables_);
  }

 private:
  // Positions whose tables this makes; the wide ones first, by how many tokens may come.
  std::pair<std::vector<int32_t>, std::vector<int32_t>> by_width() const {
    std::vector<std::pair<int64_t, int32_t>> wide;
    std::vector<int32_t> narrow, out;
    for (int32_t i = 0; i < static_cast<int32_t>(automaton_.positions.size()); ++i) {
      const Position& p = automaton_.positions[static_cast<size_t>(i)];
      const Part& part = automaton_.parts[static_cast<size_t>(p.part)];
      // In closed parts, what is wide has a table already. The end of any other %distinct depends
      // on more than a table tells.
      if (p.ends_only() || part.closed || part.kind == PartKind::kDistinct) continue;
      budget_.tick();
      const ByteSet bytes = Readings(automaton_, i).next_bytes();
      if (bytes.count() >= kWideBytes) {
        wide.emplace_back(-tokens_starting(bytes), i);
      } else {
        narrow.push_back(i);
      }
    }
    std::sort(wide.begin(), wide.end());
    for (const auto& [tokens, position] : wide) out.push_back(position);
    return {std::move(out), std::move(narrow)};
  }

  void build(const std::vector<int32_t>& positions, int64_t max_visits) {
    for (const int32_t position : positions) {
      if (visits_ > max_visits) return;
      auto& table = tables_[static_cast<size_t>(position)];
      table = walk_from(position);
      if (table != nullptr) budget_.memory(table->bytes);
    }
  }

  int64_t tokens_starting(const ByteSet& bytes) const {
    int64_t tokens = 0;
    for (int32_t b = 0; b < 256; ++b) {
      const auto byte = static_cast<uint8_t>(b);
      if (bytes[byte]) tokens += vocabulary_.tokens_starting(byte, byte);
    }
    return tokens;
  }

  // Null when the table is not worth its memory, or not to be had.
  std::shared_ptr<const TokenTable> walk_from(int32_t position) {
    const int64_t before = visits_;
    TableParts parts(vocabulary_);
    try {
      if (!PositionWalk(automaton_, vocabulary_, follow_, position, parts).run(visits_, budget_))
        return nullptr;
    } catch (const AmbiguityError&) {
      return nullptr;  // the answer meets it too, if it ever comes here
    }
    return visits_ - before < kFewVisits ? nullptr : parts.finish();
  }

  const Automaton& automaton_;
  const TokenTrie& vocabulary_;
  Budget& budget_;
  const std::vector<ByteSet> follow_;
  std::vector<std::shared_ptr<const TokenTable>> tables_;
  int64_t visits_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<const TokenTable>> build_tables(const Automaton& automaton,
                                                            const TokenTrie& vocabulary,
                                                            Budget& budget) {
  return TableBuilder(automaton, vocabulary, budget).run();
}

}  // namespace inferd
