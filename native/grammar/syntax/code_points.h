// Sets of Unicode code points, and the byte sequences that spell them in UTF-8.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace inferd {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;

// First and last code point.
struct CodeRange {
  uint32_t lo;
  uint32_t hi;
};

// Sorted, disjoint and not adjacent; without surrogates, which no UTF-8 text has.
using CodePoints = std::vector<CodeRange>;

// Sorts and merges, and takes the surrogates out.
CodePoints normalized(std::vector<CodeRange> ranges);
// All code points but these; `points` is normalized.
CodePoints complement(const CodePoints& points);
// How many code points there are.
int64_t count(const CodePoints& points);

void append_utf8(uint32_t code_point, std::string& out);

// Byte i of a sequence lies in [lo[i], hi[i]].
struct Utf8Range {
  int32_t length = 0;
  std::array<uint8_t, 4> lo{};
  std::array<uint8_t, 4> hi{};
};

// The sequences that together spell exactly the code points, each once.
std::vector<Utf8Range> utf8_ranges(const CodePoints& points);

}  // namespace inferd
