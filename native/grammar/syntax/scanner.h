// The characters and smallest parts of a grammar's text: space, names, numbers, literals and
// classes. Errors name line and column.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "grammar/syntax/code_points.h"

namespace inferd {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ >= text_.size(); }
  // '\0' at the end.
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool at_newline() const { return peek() == '\n' || peek() == '\r'; }
  // Something that can be part of a sequence starts here.
  bool at_item() const;
  // A "|" comes next; when not `nested`, also behind newlines. Reads nothing.
  bool next_is_bar(bool nested) const;
  int32_t line() const { return line_; }
  // What stands here, for messages.
  std::string here() const;

  // Blanks and comments, and with `newlines` the ends of lines.
  void skip_space(bool newlines);
  bool take(char c);
  void expect(std::string_view word);
  std::string name(const char* what);
  // At most 2^31 - 1; a larger one is an error.
  int32_t number();
  // "…", its UTF-8 bytes.
  std::string literal();
  // […] or "."
  CodePoints char_class();
  // Throws Error(kUsage): "Line 3, column 7 of the grammar: …."
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_expecting(const std::string& what) const;

 private:
  void advance();
  // One character of a literal or class, escapes included.
  uint32_t character();
  uint32_t escape();
  uint32_t hex(int digits);

  std::string_view text_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int32_t line_ = 1;
};

}  // namespace inferd
