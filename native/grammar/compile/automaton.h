// The compiled form of a grammar: a pushdown automaton over bytes.
//
// It consists of parts. A part has positions of its own; an edge leads from position to position
// over a byte, a call runs through another part and comes back at `ret`. A part ends at its final
// positions. Which rules of the text became parts of their own, and which were copied into those
// that use them, is decided in plan.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace inferd {

struct ByteEdge {
  uint8_t lo;
  uint8_t hi;  // inclusive
  int32_t target;
};

struct CallEdge {
  int32_t part;
  int32_t ret;
};

struct Position {
  // Ranges into Automaton::edges (by lo) and Automaton::calls.
  int32_t edges = 0;
  int32_t edges_end = 0;
  int32_t calls = 0;
  int32_t calls_end = 0;
  int32_t part = 0;
  bool final = false;

  bool ends_only() const { return final && edges == edges_end && calls == calls_end; }
};

enum class PartKind : uint8_t {
  kPlain,
  kScope,     // starts with no texts taken; those of the caller are there again behind it
  kDistinct,  // its text must not be taken yet, and then is
};

struct Part {
  PartKind kind = PartKind::kPlain;
  int32_t start = 0;
  bool nullable = false;  // matches the empty text
  // Can take texts of the scope that it is called in.
  bool open = false;
  // At each position a byte leads to at most one other, calls apart.
  bool deterministic = false;
  // Deterministic, calls no part, and once it can end it must: no text of it starts with another.
  bool closed = false;
  // Of kDistinct: index into Automaton::taken.
  int32_t taken = -1;
};

struct Automaton {
  std::vector<Position> positions;
  std::vector<ByteEdge> edges;
  std::vector<CallEdge> calls;
  std::vector<Part> parts;
  // Literals that a distinct part cannot match.
  std::vector<std::vector<std::string>> taken;
  int32_t root = 0;
  // Of positions in distinct parts: how many texts lead from here to the end, kMany or more as
  // kMany; 0 elsewhere.
  std::vector<uint32_t> num_texts;
  // Positions whose part cannot end without a %distinct that has fewer texts than kMany: when all
  // of those are taken, there is no way on.
  std::vector<bool> endangered;

  static constexpr uint32_t kMany = 1u << 20;

  // -1 when there is none; for deterministic parts.
  int32_t step(int32_t position, uint8_t byte) const {
    const Position& p = positions[static_cast<size_t>(position)];
    for (int32_t e = p.edges; e < p.edges_end; ++e) {
      const ByteEdge& edge = edges[static_cast<size_t>(e)];
      if (byte < edge.lo) return -1;
      if (byte <= edge.hi) return edge.target;
    }
    return -1;
  }
  int64_t bytes() const {
    int64_t taken_bytes = 0;
    for (const auto& list : taken)
      for (const std::string& text : list) taken_bytes += static_cast<int64_t>(text.size()) + 32;
    return static_cast<int64_t>(positions.size() * (sizeof(Position) + sizeof(uint32_t)) +
                                edges.size() * sizeof(ByteEdge) + calls.size() * sizeof(CallEdge) +
                                parts.size() * sizeof(Part)) +
           taken_bytes;
  }
};

}  // namespace inferd
