// All ways to read a text so far: the run-time half of the automaton.
//
// A reading is a position in an occurrence of a part, a frame. Frames know where they return to;
// readings that call the same part at the same byte share one frame, which then returns to all of
// them. So stacks are a graph, as Earley's sets and the graph-structured stacks of GLR parsers are,
// and ambiguous or left-recursive grammars need no copies of stacks. A call from the last position
// of a frame hands on the frame's own returns (Leo's way with right recursion), so that long lists
// do not pile up frames.
//
// Bytes are pushed and popped level by level, as a walk through the vocabulary needs it; commit()
// makes what was pushed final. Not thread-safe; copyable.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/compile/automaton.h"
#include "grammar/compile/follow.h"

namespace inferd {

// A bound of Readings was met.
struct AmbiguityError : Error {
  explicit AmbiguityError(const std::string& message) : Error(ErrorCode::kUnsupported, message) {}
};

struct Reading {
  int32_t position;
  int32_t frame;
  // Texts taken in the scope, where the frame's part is open or a scope: index into a list, or one
  // of the values below.
  int32_t keys;
  // Came by a call at this very byte, of a part that is not closed: whoever looks at the caller's
  // position sees this one, too.
  bool called;
};

class Readings {
 public:
  // More readings than this at once, or more work than this between two commits, are an error. All
  // answers of a step wait for the slowest: a token may take some 8 ms, ordinary schemas have
  // needed 0.6 at most (128,000 tokens); a table at compile time 0.1 s.
  static constexpr int32_t kMaxReadings = 1024;
  static constexpr int64_t kMaxTokenWork = 1 << 21, kMaxTableWork = 1 << 25;
  // Values of Reading::keys: no texts; not known (in walks that do not know their callers); the
  // reading itself depends on a text that is not known.
  static constexpr int32_t kNoKeys = 0;
  static constexpr int32_t kUnknownKeys = -1;
  static constexpr int32_t kUncertain = -2;

  enum class Fate : uint8_t { kNone, kUnsure, kCertain };

  // At the start of the root. `automaton` must outlive this.
  explicit Readings(const Automaton& automaton);
  // At one position, with unknown callers: nothing returns, and left() says when it would. Closed
  // parts that are called here, and not behind some byte, are left out.
  Readings(const Automaton& automaton, int32_t position);

  // Reads one more byte. False, and nothing changed, when no reading goes on.
  // Throws AmbiguityError past kMaxReadings or the work allowed; reset() is then due.
  bool push(uint8_t byte);
  // A level without a byte: where the frame of this reading, ended here, returns to. The text of a
  // distinct part is not looked at: it counts as some text that nothing else equals. False when
  // there is no level because nothing goes on.
  bool push_returns(const Reading& reading);
  // A level without a byte, with this reading of the latest level alone; without the closed parts
  // that it calls, which have readings of their own.
  void push_alone(const Reading& reading);
  void pop();
  // Only the latest level stays, as the first one.
  void commit();
  // Pops all levels since the last commit.
  void reset();

  std::span<const Reading> latest() const;
  // The text can end here.
  bool ended() const { return levels_.back().ended; }
  // Whether the frame that the walk began in can end here; kUnsure: that depends on a text that is
  // not known.
  Fate left() const { return levels_.back().left; }
  // Whether some way to the end of the grammar exists: one %distinct ahead is looked at. kUnsure:
  // that depends on the unseen text of push_returns().
  Fate fate();
  bool viable() { return fate() == Fate::kCertain; }
  // The same where callers and texts taken are not known.
  Fate local_fate() const;
  // Bytes that push() can succeed with.
  ByteSet next_bytes() const;
  // Texts that the distinct part of this reading cannot end with, as what is missing to them.
  std::vector<std::string> taken_rests(const Reading& reading) const;
  int64_t bytes() const;

 private:
  struct Frame {
    int32_t part;
    int32_t returns;  // first of a list in returns_, or -1
    int32_t keys;     // of its first reading
    int64_t start;    // length of the text where it was called; -1 = before the walk
  };
  struct Return {
    int32_t position;  // or kEnd, kLeft
    int32_t frame;
    int32_t keys;
    int32_t next;
  };
  // A text taken: text_[start, start + length), or an unseen one when length is -1.
  struct Key {
    int32_t previous;
    int64_t start;
    int64_t length;
  };
  // Where the lists ended when a level began.
  struct Level {
    size_t readings;
    size_t frames;
    size_t returns;
    size_t keys;
    size_t text;
    bool ended = false;
    Fate left = Fate::kNone;
  };
  static constexpr int32_t kEnd = -1;
  static constexpr int32_t kLeft = -2;

  const Part& part_of(int32_t position) const;
  void begin_level();
  void add(const Reading& reading);
  void add_return(int32_t frame, const Return& to);
  void work(int64_t units);
  void close_level(bool call_closed = true);
  void call(const Reading& from, const CallEdge& edge);
  int32_t frame_for(int32_t part, int32_t keys);
  void leave(const Reading& from);
  void return_to(const Frame& frame, const Reading& from, int32_t keys);
  // Whether a text can be taken: kUnsure when only the unseen one might equal it.
  Fate untaken(const Part& part, int32_t keys, std::string_view text);
  int32_t take_key(int32_t previous, int64_t start, int64_t length);
  Fate texts_left(const Part& part, int32_t position, int32_t keys, std::string_view begun);
  Fate fate(const Reading& reading);
  Fate some_distinct_left(const Reading& reading);
  void collect_garbage();

  const Automaton* automaton_;
  std::string text_;
  std::vector<Reading> readings_;
  std::vector<Frame> frames_;
  std::vector<Return> returns_;
  std::vector<Key> keys_{{}};  // the first is no text
  std::vector<Level> levels_;
  int64_t work_ = 0;
  int64_t max_work_;
  size_t garbage_limit_ = 4096;
};

}  // namespace inferd
