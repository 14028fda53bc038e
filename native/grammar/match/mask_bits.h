// Bits of a mask of tokens: bit i % 32 of word i / 32 is token i.
#pragma once
#include <cstdint>
#include <span>

namespace inferd {

inline void set_bits(std::span<uint32_t> words, std::span<const int32_t> ids) {
  for (const int32_t id : ids) words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

inline void clear_bits(std::span<uint32_t> words, std::span<const int32_t> ids) {
  for (const int32_t id : ids) words[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
}

inline void add_words(std::span<uint32_t> words, std::span<const uint32_t> more) {
  for (size_t i = 0; i < words.size(); ++i) words[i] |= more[i];
}

}  // namespace inferd
