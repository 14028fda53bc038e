// See json.h.
#include "core/checkpoint/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace inferd {
namespace {

// Recursive descent; the depth limit also bounds the C++ stack.
class Parser {
 public:
  Parser(std::string_view text, const std::string& source, const Json::Limits& limits)
      : text_(text), source_(source), limits_(limits) {}

  Json document() {
    if (static_cast<int64_t>(text_.size()) > limits_.max_bytes) {
      throw Error(ErrorCode::kBadModel,
                  format("%s has %zu bytes of JSON, more than the limit of %lld.", source_.c_str(),
                         text_.size(), static_cast<long long>(limits_.max_bytes)));
    }
    Json root = value(0);
    space();
    if (at_ != text_.size()) fail("something follows the end of the document");
    return root;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(ErrorCode::kBadModel,
                format("%s is not valid JSON: %s at byte %zu.", source_.c_str(), what, at_));
  }
  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c, const char* what) {
    if (!take(c)) fail(what);
  }

  Json value(int32_t depth) {
    if (depth > limits_.max_depth) fail("it is nested too deeply");
    if (++values_ > limits_.max_values) fail("it holds too many values");
    space();
    Json v;
    switch (peek()) {
      case '{':
        object(v, depth);
        break;
      case '[':
        array(v, depth);
        break;
      case '"':
        v.kind = Json::Kind::kString;
        v.string = string();
        break;
      case 't':
        word("true");
        v.kind = Json::Kind::kBool;
        v.boolean = true;
        break;
      case 'f':
        word("false");
        v.kind = Json::Kind::kBool;
        break;
      case 'n':
        word("null");
        break;
      default:
        number(v);
    }
    return v;
  }

  void word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) fail("a value is missing");
    at_ += w.size();
  }

  void object(Json& v, int32_t depth) {
    v.kind = Json::Kind::kObject;
    ++at_;
    space();
    if (take('}')) return;
    do {
      space();
      if (peek() != '"') fail("a key is missing");
      std::string key = string();
      space();
      expect(':', "a colon is missing");
      v.object.push_back({std::move(key), value(depth + 1)});
      space();
    } while (take(','));
    expect('}', "a closing brace is missing");
    check_duplicates(v);
  }

  void check_duplicates(const Json& v) const {
    std::vector<std::string_view> keys;
    keys.reserve(v.object.size());
    for (const Json::Member& m : v.object) keys.push_back(m.name);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) {
      throw Error(ErrorCode::kBadModel,
                  format("%s names the key %s twice.", source_.c_str(), in_quotes(*twice).c_str()));
    }
  }

  void array(Json& v, int32_t depth) {
    v.kind = Json::Kind::kArray;
    ++at_;
    space();
    if (take(']')) return;
    do {
      v.array.push_back(value(depth + 1));
      space();
    } while (take(','));
    expect(']', "a closing bracket is missing");
  }

  std::string string() {
    ++at_;
    std::string out;
    while (true) {
      if (at_ >= text_.size()) fail("a string does not end");
      const unsigned char c = static_cast<unsigned char>(text_[at_]);
      if (c < 0x20) fail("a string holds a control character");
      ++at_;
      if (c == '"') return out;
      if (c != '\\') {
        out.push_back(static_cast<char>(c));
        continue;
      }
      const char escape = peek();
      ++at_;
      switch (escape) {
        case '"':
        case '\\':
        case '/':
          out.push_back(escape);
          break;
        case 'b':
          out.push_back('\b');
          break;
        case 'f':
          out.push_back('\f');
          break;
        case 'n':
          out.push_back('\n');
          break;
        case 'r':
          out.push_back('\r');
          break;
        case 't':
          out.push_back('\t');
          break;
        case 'u':
          append_utf8(out, code_point());
          break;
        default:
          fail("a string holds an unknown escape");
      }
    }
  }

  uint32_t hex4() {
    uint32_t v = 0;
    if (at_ + 4 > text_.size()) fail("a unicode escape is cut off");
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, v, 16);
    if (error != std::errc() || end != text_.data() + at_ + 4)
      fail("a unicode escape is not four hex digits");
    at_ += 4;
    return v;
  }

  uint32_t code_point() {
    const uint32_t high = hex4();
    if (high < 0xd800 || high > 0xdfff) return high;
    if (high > 0xdbff || text_.substr(at_, 2) != "\\u") fail("a surrogate stands alone");
    at_ += 2;
    const uint32_t low = hex4();
    if (low < 0xdc00 || low > 0xdfff) fail("a surrogate stands alone");
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  static void append_utf8(std::string& out, uint32_t c) {
    const auto push = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (c < 0x80) {
      push(c);
    } else if (c < 0x800) {
      push(0xc0 | (c >> 6)), push(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      push(0xe0 | (c >> 12)), push(0x80 | ((c >> 6) & 0x3f)), push(0x80 | (c & 0x3f));
    } else {
      push(0xf0 | (c >> 18)), push(0x80 | ((c >> 12) & 0x3f)), push(0x80 | ((c >> 6) & 0x3f)),
          push(0x80 | (c & 0x3f));
    }
  }

  void digits() {
    if (peek() < '0' || peek() > '9') fail("a value is missing");
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  void number(Json& v) {
    const size_t start = at_;
    take('-');
    if (!take('0')) digits();
    bool whole = true;
    if (take('.')) whole = false, digits();
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (!take('+')) take('-');
      digits();
    }
    const char* first = text_.data() + start;
    const char* last = text_.data() + at_;
    if (whole && std::from_chars(first, last, v.integer).ec == std::errc()) {
      v.kind = Json::Kind::kInteger;
      v.number = static_cast<double>(v.integer);
      return;
    }
    v.kind = Json::Kind::kNumber;
    if (std::from_chars(first, last, v.number).ec != std::errc() || !std::isfinite(v.number))
      fail("a number is out of range");
  }

  std::string_view text_;
  const std::string& source_;
  Json::Limits limits_;
  size_t at_ = 0;
  int64_t values_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text, const std::string& source, const Limits& limits) {
  return Parser(text, source, limits).document();
}

const Json* Json::find(std::string_view key) const {
  for (const Member& m : object) {
    if (m.name == key) return m.value.is(Kind::kNull) ? nullptr : &m.value;
  }
  return nullptr;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kMost = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kMost)) out.push_back(c >= 0x20 && c < 0x7f ? c : '?');
  return out + (text.size() > kMost ? "...\"" : "\"");
}

}  // namespace inferd
