// The part of Readings (readings.h) that forgets frames that no reading can return to.
#include <algorithm>

#include "grammar/match/readings.h"

namespace inferd {

// Keeps what the readings can still reach. Only between steps, with one level.
void Readings::collect_garbage() {
  std::vector<int32_t> frame_to(frames_.size(), -1), key_to(keys_.size(), -1), open;
  key_to[0] = 0;
  const auto mark_keys = [&](int32_t k) {
    for (; k > 0 && key_to[static_cast<size_t>(k)] < 0; k = keys_[static_cast<size_t>(k)].previous)
      key_to[static_cast<size_t>(k)] = 0;
  };
  const auto mark_frame = [&](int32_t f) {
    if (frame_to[static_cast<size_t>(f)] >= 0) return;
    frame_to[static_cast<size_t>(f)] = 0;
    open.push_back(f);
  };
  for (const Reading& r : readings_) {
    mark_frame(r.frame);
    mark_keys(r.keys);
  }
  while (!open.empty()) {
    const Frame f = frames_[static_cast<size_t>(open.back())];
    open.pop_back();
    mark_keys(f.keys);
    for (int32_t i = f.returns; i >= 0; i = returns_[static_cast<size_t>(i)].next) {
      const Return& to = returns_[static_cast<size_t>(i)];
      mark_keys(to.keys);
      if (to.position >= 0) mark_frame(to.frame);
    }
  }
  // New numbers in the old order; a key's previous one has a smaller number.
  std::vector<Key> keys;
  for (size_t k = 0; k < keys_.size(); ++k) {
    if (key_to[k] < 0) continue;
    key_to[k] = static_cast<int32_t>(keys.size());
    keys.push_back(keys_[k]);
    Key& key = keys.back();
    if (key.previous > 0) key.previous = key_to[static_cast<size_t>(key.previous)];
  }
  const auto new_key = [&](int32_t k) { return k > 0 ? key_to[static_cast<size_t>(k)] : k; };
  int32_t next = 0;
  for (int32_t& to : frame_to)
    if (to >= 0) to = next++;
  std::vector<Frame> frames;
  std::vector<Return> returns;
  for (size_t f = 0; f < frames_.size(); ++f) {
    if (frame_to[f] < 0) continue;
    Frame frame = frames_[f];
    frame.keys = new_key(frame.keys);
    int32_t list = -1;
    for (int32_t i = frame.returns; i >= 0; i = returns_[static_cast<size_t>(i)].next) {
      Return to = returns_[static_cast<size_t>(i)];
      to.frame = to.position >= 0 ? frame_to[static_cast<size_t>(to.frame)] : 0;
      to.keys = new_key(to.keys);
      to.next = list;
      returns.push_back(to);
      list = static_cast<int32_t>(returns.size()) - 1;
    }
    frame.returns = list;
    frames.push_back(frame);
  }
  for (Reading& r : readings_) {
    r.frame = frame_to[static_cast<size_t>(r.frame)];
    r.keys = new_key(r.keys);
  }
  frames_ = std::move(frames);
  returns_ = std::move(returns);
  keys_ = std::move(keys);
  Level& level = levels_.back();
  level.frames = frames_.size();
  level.returns = returns_.size();
  level.keys = keys_.size();
  garbage_limit_ = std::max<size_t>(4096, 2 * (frames_.size() + returns_.size() + keys_.size()));
}

int64_t Readings::bytes() const {
  return static_cast<int64_t>(text_.capacity() + readings_.capacity() * sizeof(Reading) +
                              frames_.capacity() * sizeof(Frame) +
                              returns_.capacity() * sizeof(Return) +
                              keys_.capacity() * sizeof(Key) + levels_.capacity() * sizeof(Level));
}

}  // namespace inferd
