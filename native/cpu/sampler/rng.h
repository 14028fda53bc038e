// Philox4x32-10: counter-based random numbers (Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", 2011).
//
// A draw is a pure function of (seed, output position, sequence index, draw number): nothing is
// stored, so preemption, restarts and batch mates cannot change it. Any thread.
#pragma once
#include <array>
#include <cstdint>

namespace inferd {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits.
inline double uniform_draw(uint64_t seed, uint32_t position, uint32_t sequence, uint32_t draw) {
  const std::array<uint32_t, 4> r =
      philox4x32({position, sequence, draw, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = uint64_t{r[0]} << 32 | r[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace inferd
