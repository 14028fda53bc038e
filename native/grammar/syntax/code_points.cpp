// See code_points.h.
#include "grammar/syntax/code_points.h"

#include <algorithm>

namespace inferd {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;

// Splits a range until all its code points have as many bytes and vary in whole trailing bytes
// only, so that it is one product of byte ranges (the method of RE2 and of Rust's utf8-ranges).
void split(uint32_t lo, uint32_t hi, std::vector<Utf8Range>& out) {
  for (const uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (lo <= last && last < hi) {
      split(lo, last, out);
      split(last + 1, hi, out);
      return;
    }
  }
  if (hi > 0x7F) {
    for (int i = 1; i < 4; ++i) {
      const uint32_t mask = (1u << (6 * i)) - 1;
      if ((lo & ~mask) == (hi & ~mask)) break;
      if ((lo & mask) != 0) {
        split(lo, lo | mask, out);
        split((lo | mask) + 1, hi, out);
        return;
      }
      if ((hi & mask) != mask) {
        split(lo, (hi & ~mask) - 1, out);
        split(hi & ~mask, hi, out);
        return;
      }
    }
  }
  std::string first, last;
  append_utf8(lo, first);
  append_utf8(hi, last);
  Utf8Range range;
  range.length = static_cast<int32_t>(first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    range.lo[i] = static_cast<uint8_t>(first[i]);
    range.hi[i] = static_cast<uint8_t>(last[i]);
  }
  out.push_back(range);
}

}  // namespace

CodePoints normalized(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.lo < b.lo; });
  CodePoints merged;
  for (const CodeRange& r : ranges) {
    if (!merged.empty() && r.lo <= merged.back().hi + 1) {
      merged.back().hi = std::max(merged.back().hi, r.hi);
    } else {
      merged.push_back(r);
    }
  }
  CodePoints out;
  for (const CodeRange& r : merged) {
    if (r.lo < kFirstSurrogate) out.push_back({r.lo, std::min(r.hi, kFirstSurrogate - 1)});
    if (r.hi > kLastSurrogate) out.push_back({std::max(r.lo, kLastSurrogate + 1), r.hi});
  }
  return out;
}

CodePoints complement(const CodePoints& points) {
  std::vector<CodeRange> out;
  uint32_t next = 0;
  for (const CodeRange& r : points) {
    if (r.lo > next) out.push_back({next, r.lo - 1});
    next = r.hi + 1;
  }
  if (next <= kMaxCodePoint) out.push_back({next, kMaxCodePoint});
  return normalized(std::move(out));
}

int64_t count(const CodePoints& points) {
  int64_t n = 0;
  for (const CodeRange& r : points) n += int64_t{r.hi} - r.lo + 1;
  return n;
}

void append_utf8(uint32_t code_point, std::string& out) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::vector<Utf8Range> utf8_ranges(const CodePoints& points) {
  std::vector<Utf8Range> out;
  for (const CodeRange& r : points) split(r.lo, r.hi, out);
  return out;
}

}  // namespace inferd
