// See scanner.h.
#include "grammar/syntax/scanner.h"

#include "core/error.h"

namespace inferd {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

// Length of the UTF-8 character that starts with this byte; 0 when none does.
int utf8_length(uint8_t byte) {
  if (byte < 0x80) return 1;
  if (byte >= 0xC2 && byte <= 0xDF) return 2;
  if (byte >= 0xE0 && byte <= 0xEF) return 3;
  if (byte >= 0xF0 && byte <= 0xF4) return 4;
  return 0;
}

}  // namespace

bool Scanner::at_item() const {
  const char c = peek();
  return c == '"' || c == '[' || c == '.' || c == '(' || c == '%' || is_name_char(c);
}

bool Scanner::next_is_bar(bool nested) const {
  Scanner ahead = *this;
  ahead.skip_space(false);
  if (ahead.peek() == '|' || nested) {
    ahead.skip_space(nested);
    return ahead.peek() == '|';
  }
  if (!ahead.at_newline()) return false;
  ahead.skip_space(true);
  return ahead.peek() == '|';
}

std::string Scanner::here() const {
  if (at_end()) return "the end of the text";
  const auto c = static_cast<uint8_t>(text_[at_]);
  if (c == '\n' || c == '\r') return "the end of the line";
  if (c < 0x20 || c == 0x7F) return format("the byte 0x%02x", c);
  const size_t length = static_cast<size_t>(utf8_length(c));
  if (length <= 1) return format("\"%c\"", c < 0x80 ? c : '?');
  return format("\"%s\"", std::string(text_.substr(at_, length)).c_str());
}

void Scanner::advance() {
  if (text_[at_++] == '\n') {
    ++line_;
    line_start_ = at_;
  }
}

void Scanner::skip_space(bool newlines) {
  while (!at_end()) {
    const char c = text_[at_];
    if (c == '#') {
      while (!at_end() && !at_newline()) ++at_;
    } else if (c == ' ' || c == '\t' || (newlines && at_newline())) {
      advance();
    } else {
      return;
    }
  }
}

bool Scanner::take(char c) {
  if (peek() != c || at_end()) return false;
  advance();
  return true;
}

void Scanner::expect(std::string_view word) {
  if (text_.substr(at_, word.size()) != word)
    fail_expecting(format("\"%s\"", std::string(word).c_str()));
  at_ += word.size();
}

std::string Scanner::name(const char* what) {
  const size_t from = at_;
  while (!at_end() && is_name_char(text_[at_])) ++at_;
  if (at_ == from) fail_expecting(what);
  return std::string(text_.substr(from, at_ - from));
}

int32_t Scanner::number() {
  if (peek() < '0' || peek() > '9') fail_expecting("a number");
  int64_t value = 0;
  while (peek() >= '0' && peek() <= '9') {
    value = value * 10 + (text_[at_++] - '0');
    if (value > INT32_MAX) fail("a repetition of more than 2147483647 times is not possible");
  }
  return static_cast<int32_t>(value);
}

std::string Scanner::literal() {
  expect("\"");
  std::string out;
  while (peek() != '"' || at_end()) {
    if (at_end()) fail("a literal has no closing quote");
    append_utf8(character(), out);
  }
  expect("\"");
  return out;
}

CodePoints Scanner::char_class() {
  if (take('.')) return complement({});
  expect("[");
  const bool negated = take('^');
  std::vector<CodeRange> ranges;
  while (peek() != ']' || at_end()) {
    if (at_end()) fail("a class has no closing bracket");
    const uint32_t lo = character();
    uint32_t hi = lo;
    if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
      expect("-");
      hi = character();
    }
    if (hi < lo) fail("a range of a class ends before it starts");
    ranges.push_back({lo, hi});
  }
  expect("]");
  const CodePoints points = normalized(std::move(ranges));
  return negated ? complement(points) : points;
}

uint32_t Scanner::character() {
  if (take('\\')) return escape();
  const auto first = static_cast<uint8_t>(text_[at_]);
  const int length = utf8_length(first);
  if (length == 1) {
    advance();
    return first;
  }
  uint32_t value = first & (0x7F >> length);
  bool good = length > 0 && at_ + static_cast<size_t>(length) <= text_.size();
  for (int i = 1; good && i < length; ++i) {
    const auto byte = static_cast<uint8_t>(text_[at_ + static_cast<size_t>(i)]);
    good = (byte & 0xC0) == 0x80;
    value = value << 6 | (byte & 0x3F);
  }
  const bool shortest = length < 3 || value >= (length == 3 ? 0x800u : 0x10000u);
  if (!good || !shortest || value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF))
    fail("the text is not UTF-8");
  at_ += static_cast<size_t>(length);
  return value;
}

uint32_t Scanner::escape() {
  if (at_end()) fail("an escape is cut off");
  const char c = text_[at_];
  ++at_;
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
      return static_cast<uint8_t>(c);
    case 'x':
      return hex(2);
    case 'u':
      return hex(4);
    case 'U':
      return hex(8);
    default:
      --at_;
      fail(format("\"\\\" cannot stand before %s", here().c_str()));
  }
}

uint32_t Scanner::hex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const char c = peek();
    uint32_t digit;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint32_t>(c - 'a' + 10);
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<uint32_t>(c - 'A' + 10);
    } else {
      fail_expecting(format("an escape of %d hexadecimal digits", digits));
    }
    value = value << 4 | digit;
    ++at_;
  }
  if (value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF))
    fail("an escape names no Unicode character");
  return value;
}

void Scanner::fail(const std::string& what) const {
  // Characters, not bytes: continuation bytes are not counted.
  int64_t column = 1;
  for (size_t i = line_start_; i < at_ && i < text_.size(); ++i) {
    if ((static_cast<uint8_t>(text_[i]) & 0xC0) != 0x80) ++column;
  }
  throw Error(ErrorCode::kUsage, format("Line %d, column %lld of the grammar: %s.", line_,
                                        static_cast<long long>(column), what.c_str()));
}

void Scanner::fail_expecting(const std::string& what) const {
  fail(format("%s is expected, but %s follows", what.c_str(), here().c_str()));
}

}  // namespace inferd
