// One part while it is made: states with edges over nothing, a byte or a call, and its
// determinization.
#pragma once
#include <cstdint>
#include <vector>

#include "grammar/compile/automaton.h"
#include "grammar/compile/budget.h"

namespace inferd {

struct Nfa {
  static constexpr int32_t kEmpty = -2;
  static constexpr int32_t kBytes = -1;

  struct Edge {
    int32_t from;
    int32_t to;
    int32_t call;  // kEmpty, kBytes, or the part that is called
    uint8_t lo = 0;
    uint8_t hi = 0;
  };

  std::vector<Edge> edges;
  int32_t num_states = 0;
  int32_t start = 0;
  int32_t end = 0;

  void add_empty(int32_t from, int32_t to) {
    if (from != to) edges.push_back({from, to, kEmpty});
  }
};

// A part with positions numbered from 0, its start.
struct LocalPart {
  struct State {
    std::vector<ByteEdge> edges;  // by lo
    std::vector<CallEdge> calls;
    bool final = false;
  };
  std::vector<State> states;
  // Byte edges of one state never overlap.
  bool deterministic = true;
};

// Makes byte edges and calls deterministic (subset construction, a call being one symbol). Where
// that needs many times the states, only the empty edges are taken out, and the part stays
// nondeterministic.
LocalPart determinize(const Nfa& nfa, Budget& budget);

}  // namespace inferd
