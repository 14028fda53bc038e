// See readings.h.
#include "grammar/match/readings.h"

#include <algorithm>

namespace inferd {

Readings::Readings(const Automaton& automaton) : automaton_(&automaton), max_work_(kMaxTokenWork) {
  begin_level();
  frames_.push_back({automaton.root, -1, kNoKeys, 0});
  add_return(0, {kEnd, 0, kNoKeys, -1});
  const Part& root = automaton.parts[static_cast<size_t>(automaton.root)];
  levels_.back().ended = root.nullable;
  add({root.start, 0, kNoKeys, false});
  close_level();
}

Readings::Readings(const Automaton& automaton, int32_t position)
    : automaton_(&automaton), max_work_(kMaxTableWork) {
  begin_level();
  const Part& part = part_of(position);
  const bool scoped = part.open || part.kind == PartKind::kScope;
  const int32_t keys = scoped ? kUnknownKeys : kNoKeys;
  frames_.push_back({automaton.positions[static_cast<size_t>(position)].part, -1, keys, -1});
  add_return(0, {kLeft, 0, keys, -1});
  add({position, 0, keys, false});
  close_level(false);
}

const Part& Readings::part_of(int32_t position) const {
  return automaton_
      ->parts[static_cast<size_t>(automaton_->positions[static_cast<size_t>(position)].part)];
}

void Readings::begin_level() {
  levels_.push_back({.readings = readings_.size(),
                     .frames = frames_.size(),
                     .returns = returns_.size(),
                     .keys = keys_.size(),
                     .text = text_.size()});
}

std::span<const Reading> Readings::latest() const {
  const size_t from = levels_.back().readings;
  return {readings_.data() + from, readings_.size() - from};
}

void Readings::work(int64_t units) {
  work_ += units;
  if (work_ > max_work_) {
    throw AmbiguityError(
        "The text can be read in too many ways under its grammar: the next token takes too long "
        "to find.");
  }
}

bool Readings::push(uint8_t byte) {
  const size_t from = levels_.back().readings, to = readings_.size();
  begin_level();
  for (size_t i = from; i < to; ++i) {
    const Reading r = readings_[i];
    const Position& p = automaton_->positions[static_cast<size_t>(r.position)];
    for (int32_t e = p.edges; e < p.edges_end; ++e) {
      const ByteEdge& edge = automaton_->edges[static_cast<size_t>(e)];
      if (byte < edge.lo) break;
      if (byte <= edge.hi) add({edge.target, r.frame, r.keys, false});
    }
  }
  work(static_cast<int64_t>(to - from));
  if (readings_.size() == to) {
    levels_.pop_back();
    return false;
  }
  text_.push_back(static_cast<char>(byte));
  close_level();
  return true;
}

bool Readings::push_returns(const Reading& reading) {
  begin_level();
  const Frame frame = frames_[static_cast<size_t>(reading.frame)];
  const Part& part = part_of(reading.position);
  int32_t keys = reading.keys;
  if (part.kind == PartKind::kDistinct) keys = take_key(keys, 0, -1);
  // Stands for what was read in the frame: callers that began where it did are not empty matches.
  text_.push_back('\0');
  return_to(frame, reading, keys);
  close_level();
  if (readings_.size() > levels_.back().readings || levels_.back().ended) return true;
  pop();
  return false;
}

void Readings::push_alone(const Reading& reading) {
  const Reading alone{reading.position, reading.frame, reading.keys, false};
  begin_level();
  add(alone);
  close_level(false);
}

ByteSet Readings::next_bytes() const {
  ByteSet out;
  for (const Reading& r : latest()) out |= edge_bytes(*automaton_, r.position);
  return out;
}

void Readings::pop() {
  const Level& level = levels_.back();
  readings_.resize(level.readings);
  frames_.resize(level.frames);
  returns_.resize(level.returns);
  keys_.resize(level.keys);
  text_.resize(level.text);
  levels_.pop_back();
}

void Readings::reset() {
  while (levels_.size() > 1) pop();
  work_ = 0;
}

void Readings::commit() {
  work_ = 0;
  if (levels_.size() == 1) return;
  const Level last = levels_.back();
  readings_.erase(readings_.begin(),
                  readings_.begin() + static_cast<std::ptrdiff_t>(last.readings));
  levels_.assign(1, {.readings = 0,
                     .frames = frames_.size(),
                     .returns = returns_.size(),
                     .keys = keys_.size(),
                     .text = text_.size(),
                     .ended = last.ended,
                     .left = last.left});
  if (frames_.size() + returns_.size() + keys_.size() > garbage_limit_) collect_garbage();
}

void Readings::add(const Reading& reading) {
  const size_t from = levels_.back().readings;
  for (size_t i = from; i < readings_.size(); ++i) {
    Reading& r = readings_[i];
    if (r.position == reading.position && r.frame == reading.frame && r.keys == reading.keys) {
      r.called = r.called && reading.called;
      work(1);
      return;
    }
  }
  work(static_cast<int64_t>(readings_.size() - from) / 16 + 1);
  if (readings_.size() - from >= static_cast<size_t>(kMaxReadings)) {
    throw AmbiguityError(format(
        "The text can be read in more than %d ways at once under its grammar.", kMaxReadings));
  }
  readings_.push_back(reading);
}

void Readings::add_return(int32_t frame, const Return& to) {
  Frame& f = frames_[static_cast<size_t>(frame)];
  for (int32_t i = f.returns; i >= 0; i = returns_[static_cast<size_t>(i)].next) {
    const Return& r = returns_[static_cast<size_t>(i)];
    work(1);
    if (r.position == to.position && r.frame == to.frame && r.keys == to.keys) return;
  }
  returns_.push_back({to.position, to.frame, to.keys, f.returns});
  f.returns = static_cast<int32_t>(returns_.size()) - 1;
}

// Follows calls and ends until nothing new comes. What grows while it is read are vectors: indexes
// and copies, no references.
void Readings::close_level(bool call_closed) {
  for (size_t i = levels_.back().readings; i < readings_.size(); ++i) {
    const Reading r = readings_[i];
    const Position& p = automaton_->positions[static_cast<size_t>(r.position)];
    if (p.final) leave(r);
    for (int32_t c = p.calls; c < p.calls_end; ++c) {
      const CallEdge& edge = automaton_->calls[static_cast<size_t>(c)];
      if (call_closed || !automaton_->parts[static_cast<size_t>(edge.part)].closed) call(r, edge);
    }
  }
}

void Readings::call(const Reading& from, const CallEdge& edge) {
  const Part& part = automaton_->parts[static_cast<size_t>(edge.part)];
  if (part.nullable) add({edge.ret, from.frame, from.keys, true});
  int32_t keys = from.keys;
  if (!part.open && keys != kUncertain) keys = kNoKeys;
  if (part.kind == PartKind::kDistinct && keys >= 0) {
    const Fate left = texts_left(part, part.start, keys, std::string_view());
    if (left == Fate::kNone) return;
    if (left == Fate::kUnsure) keys = kUncertain;
  }
  const int32_t frame = frame_for(edge.part, keys);
  add({part.start, frame, keys, !part.closed});

  const Part& caller = part_of(from.position);
  const Frame own = frames_[static_cast<size_t>(from.frame)];
  const bool last = automaton_->positions[static_cast<size_t>(edge.ret)].ends_only() &&
                    caller.kind == PartKind::kPlain &&
                    own.start != static_cast<int64_t>(text_.size());
  if (!last) {
    add_return(frame, {edge.ret, from.frame, from.keys, -1});
    return;
  }
  for (int32_t i = own.returns; i >= 0; i = returns_[static_cast<size_t>(i)].next) {
    Return to = returns_[static_cast<size_t>(i)];
    if (caller.open || from.keys == kUncertain) to.keys = from.keys;
    add_return(frame, to);
  }
}

int32_t Readings::frame_for(int32_t part, int32_t keys) {
  for (size_t i = levels_.back().frames; i < frames_.size(); ++i) {
    const Frame& f = frames_[i];
    // The frame of a walk's beginning has unknown callers beside the known ones.
    if (f.part == part && f.keys == keys && f.start >= 0) return static_cast<int32_t>(i);
  }
  frames_.push_back({part, -1, keys, static_cast<int64_t>(text_.size())});
  return static_cast<int32_t>(frames_.size()) - 1;
}

// The frame of this reading ends here.
void Readings::leave(const Reading& from) {
  const Frame frame = frames_[static_cast<size_t>(from.frame)];
  // An empty match: whoever called has gone on already.
  if (frame.start == static_cast<int64_t>(text_.size())) return;
  const Part& part = part_of(from.position);
  int32_t keys = from.keys;
  if (part.kind == PartKind::kDistinct && frame.start >= 0 && keys != kUncertain) {
    if (keys == kUnknownKeys) {
      keys = kUncertain;
    } else {
      const std::string_view text =
          std::string_view(text_).substr(static_cast<size_t>(frame.start));
      const Fate fate = untaken(part, keys, text);
      if (fate == Fate::kNone) return;
      keys = fate == Fate::kUnsure ? kUncertain
                                   : take_key(keys, frame.start, static_cast<int64_t>(text.size()));
    }
  }
  return_to(frame, from, keys);
}

void Readings::return_to(const Frame& frame, const Reading& from, int32_t keys) {
  const bool open = part_of(from.position).open;
  for (int32_t i = frame.returns; i >= 0; i = returns_[static_cast<size_t>(i)].next) {
    const Return to = returns_[static_cast<size_t>(i)];
    if (to.position == kEnd) {
      levels_.back().ended = true;
    } else if (to.position == kLeft) {
      Fate& left = levels_.back().left;
      left = std::max(left, keys == kUncertain ? Fate::kUnsure : Fate::kCertain);
    } else {
      add({to.position, to.frame, open || keys == kUncertain ? keys : to.keys, false});
    }
  }
}

Readings::Fate Readings::fate() {
  if (levels_.back().ended) return Fate::kCertain;
  Fate out = Fate::kNone;
  for (size_t i = levels_.back().readings; i < readings_.size(); ++i) {
    const Fate one = readings_[i].called ? Fate::kNone : fate(readings_[i]);
    if (one == Fate::kCertain) return one;
    if (one == Fate::kUnsure) out = one;
  }
  return out;
}

Readings::Fate Readings::fate(const Reading& r) {
  // What comes behind the end of its frame has readings of its own.
  if (automaton_->positions[static_cast<size_t>(r.position)].ends_only()) return Fate::kNone;
  if (r.keys == kUncertain) return Fate::kUnsure;
  const Part& part = part_of(r.position);
  if (part.kind == PartKind::kDistinct) {
    const Frame& frame = frames_[static_cast<size_t>(r.frame)];
    return texts_left(part, r.position, r.keys,
                      std::string_view(text_).substr(static_cast<size_t>(frame.start)));
  }
  if (!automaton_->endangered[static_cast<size_t>(r.position)]) return Fate::kCertain;
  return some_distinct_left(r);
}

Readings::Fate Readings::local_fate() const {
  Fate out = Fate::kNone;
  for (const Reading& r : latest()) {
    const auto at = static_cast<size_t>(r.position);
    if (r.called || automaton_->positions[at].ends_only()) continue;
    const bool few = part_of(r.position).kind == PartKind::kDistinct &&
                     automaton_->num_texts[at] < Automaton::kMany;
    if (r.keys != kUncertain && !few && !automaton_->endangered[at]) return Fate::kCertain;
    out = Fate::kUnsure;
  }
  return out;
}

}  // namespace inferd
