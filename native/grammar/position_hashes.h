// Which positions of closed parts do the same with all texts up to some length.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "grammar/compile/automaton.h"
#include "grammar/compile/budget.h"

namespace inferd {

class PositionHashes {
 public:
  // 128 bits: equal ones are taken for equal behaviour.
  using Hash = std::array<uint64_t, 2>;
  // Lengths up to which all positions can be compared; the last one is that of the constructor.
  static constexpr std::array<int32_t, 6> kLengths{1, 2, 4, 8, 16, 32};

  // `positions`: those of closed parts. For texts of at most `length` bytes.
  PositionHashes(const Automaton& automaton, std::vector<int32_t> positions, int32_t length,
                 Budget& budget);

  // Of all texts up to the length of the constructor.
  const Hash& hash(int32_t position) const { return rounds_.back()[index(position)]; }
  // Of texts up to kLengths[level].
  const Hash& hash(int32_t position, size_t level) const { return rounds_[level][index(position)]; }
  // The same is done with all texts of up to `length` bytes; false also where that is not known.
  bool alike(int32_t a, int32_t b, int32_t length) const;

 private:
  size_t index(int32_t position) const {
    return static_cast<size_t>(index_[static_cast<size_t>(position)]);
  }
  Hash finality(int32_t position) const;
  Hash once(int32_t position, const std::vector<Hash>& targets) const;

  const Automaton& automaton_;
  const std::vector<int32_t> positions_;
  std::vector<int32_t> index_;
  std::vector<Hash> own_;                  // of the positions alone
  std::vector<std::vector<Hash>> rounds_;  // by level, and one more
};

}  // namespace inferd
