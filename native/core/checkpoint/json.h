// A bounded JSON reader for the small files of a model folder: config.json, the safetensors header
// and the shard index.
//
// Hostile input costs bounded time and memory: bytes, nesting and number of values are capped, and
// every defect is an Error(kBadModel) that names the source and the byte. Duplicate keys are
// refused, because readers disagree on which one counts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inferd {

class Json {
 public:
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };
  struct Member;

  struct Limits {
    int64_t max_bytes = 16 << 20;
    int32_t max_depth = 64;
    int64_t max_values = 2'000'000;
  };

  // Parses one document; `source` names it in errors. Throws Error(kBadModel).
  static Json parse(std::string_view text, const std::string& source, const Limits& limits);
  static Json parse(std::string_view text, const std::string& source);

  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;  // when kInteger
  double number = 0;    // when kNumber or kInteger
  std::string string;
  std::vector<Json> array;
  std::vector<Member> object;  // in the order of the file

  bool is(Kind wanted) const { return kind == wanted; }
  bool is_number() const { return kind == Kind::kNumber || kind == Kind::kInteger; }
  // Member of an object, or null when it is absent, `null`, or this is no object.
  const Json* find(std::string_view key) const;
};

struct Json::Member {
  std::string name;
  Json value;
};

inline Json Json::parse(std::string_view text, const std::string& source) {
  return parse(text, source, Limits{});
}

// Text for an error message: in quotes, at most 80 characters, without control characters or broken
// UTF-8.
std::string in_quotes(std::string_view text);

}  // namespace inferd
