// The part of Readings (readings.h) that knows which texts of %distinct are taken.
#include <algorithm>
#include <set>

#include "grammar/match/readings.h"

namespace inferd {

Readings::Fate Readings::untaken(const Part& part, int32_t keys, std::string_view text) {
  const auto& literals = automaton_->taken[static_cast<size_t>(part.taken)];
  if (std::binary_search(literals.begin(), literals.end(), text)) return Fate::kNone;
  Fate out = Fate::kCertain;
  for (int32_t k = keys; k > 0; k = keys_[static_cast<size_t>(k)].previous) {
    const Key& key = keys_[static_cast<size_t>(k)];
    work(1);
    if (key.length < 0) {
      out = Fate::kUnsure;
    } else if (std::string_view(text_).substr(static_cast<size_t>(key.start),
                                              static_cast<size_t>(key.length)) == text) {
      return Fate::kNone;
    }
  }
  return out;
}

int32_t Readings::take_key(int32_t previous, int64_t start, int64_t length) {
  if (previous < 0) return previous;
  for (size_t i = levels_.back().keys; i < keys_.size(); ++i) {
    const Key& k = keys_[i];
    if (k.previous == previous && k.start == start && k.length == length)
      return static_cast<int32_t>(i);
  }
  keys_.push_back({previous, start, length});
  return static_cast<int32_t>(keys_.size()) - 1;
}

std::vector<std::string> Readings::taken_rests(const Reading& reading) const {
  const Part& part = part_of(reading.position);
  const Frame& frame = frames_[static_cast<size_t>(reading.frame)];
  const std::string_view text = text_;
  const std::string_view begun = text.substr(static_cast<size_t>(frame.start));
  std::vector<std::string> out;
  const auto consider = [&](std::string_view taken) {
    if (!taken.starts_with(begun)) return;
    const std::string_view rest = taken.substr(begun.size());
    int32_t at = reading.position;
    for (const char c : rest) {
      at = automaton_->step(at, static_cast<uint8_t>(c));
      if (at < 0) return;
    }
    if (automaton_->positions[static_cast<size_t>(at)].final) out.emplace_back(rest);
  };
  for (const std::string& literal : automaton_->taken[static_cast<size_t>(part.taken)])
    consider(literal);
  for (int32_t k = reading.keys; k > 0; k = keys_[static_cast<size_t>(k)].previous) {
    const Key& key = keys_[static_cast<size_t>(k)];
    if (key.length >= 0)
      consider(text.substr(static_cast<size_t>(key.start), static_cast<size_t>(key.length)));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// A distinct part, begun with this text, can still end with one that is not taken.
Readings::Fate Readings::texts_left(const Part& part, int32_t position, int32_t keys,
                                    std::string_view begun) {
  const uint32_t all = automaton_->num_texts[static_cast<size_t>(position)];
  if (all >= Automaton::kMany) return Fate::kCertain;
  bool unseen = false;
  std::set<std::string_view> taken;
  const auto consider = [&](std::string_view text) {
    work(1);
    if (!text.starts_with(begun)) return;
    int32_t at = position;
    for (const char c : text.substr(begun.size())) {
      at = automaton_->step(at, static_cast<uint8_t>(c));
      if (at < 0) return;
    }
    if (automaton_->positions[static_cast<size_t>(at)].final) taken.insert(text);
  };
  for (const std::string& literal : automaton_->taken[static_cast<size_t>(part.taken)])
    consider(literal);
  for (int32_t k = keys; k > 0; k = keys_[static_cast<size_t>(k)].previous) {
    const Key& key = keys_[static_cast<size_t>(k)];
    if (key.length < 0) {
      unseen = true;
    } else {
      consider(std::string_view(text_).substr(static_cast<size_t>(key.start),
                                              static_cast<size_t>(key.length)));
    }
  }
  if (taken.size() >= all) return Fate::kNone;
  return unseen && taken.size() + 1 == all ? Fate::kUnsure : Fate::kCertain;
}

// All ways to the end of the part lead through a %distinct: one that is left is found by searching
// the positions from here to the nearest ones.
Readings::Fate Readings::some_distinct_left(const Reading& reading) {
  Fate out = Fate::kNone;
  std::vector<int32_t> open{reading.position};
  std::set<int32_t> seen{reading.position};
  const auto visit = [&](int32_t position) {
    if (seen.insert(position).second) open.push_back(position);
  };
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    work(1);
    if (!automaton_->endangered[static_cast<size_t>(at)]) return Fate::kCertain;
    const Position& p = automaton_->positions[static_cast<size_t>(at)];
    for (int32_t e = p.edges; e < p.edges_end; ++e)
      visit(automaton_->edges[static_cast<size_t>(e)].target);
    for (int32_t c = p.calls; c < p.calls_end; ++c) {
      const CallEdge& edge = automaton_->calls[static_cast<size_t>(c)];
      const Part& part = automaton_->parts[static_cast<size_t>(edge.part)];
      if (part.kind == PartKind::kDistinct) {
        const Fate left = texts_left(part, part.start, reading.keys, std::string_view());
        if (left == Fate::kCertain) return left;
        if (left == Fate::kUnsure) out = left;
      } else if (!automaton_->endangered[static_cast<size_t>(part.start)]) {
        visit(edge.ret);
      } else if (part.open) {
        visit(part.start);
      }
    }
  }
  return out;
}

}  // namespace inferd
