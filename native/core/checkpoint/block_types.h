// The types of GGUF tensors, as data: how many weights and bytes a block has, and how it is read.
// A new type is a function and a line in block_types.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/coded_block.h"
#include "core/tensor.h"
#include "core/weight_format.h"

namespace inferd {

struct BlockType {
  const char* name;
  uint32_t id;            // in files
  int64_t values, bytes;  // of a block
  DType plain;            // where `decode` is null: the weights themselves
  // Reads a block into values / 32 coded blocks.
  void (*decode)(const std::byte* block, CodedBlock* out);
  // In which backends keep it where they can; for plain types that type.
  WeightFormat coded;
  // A tighter one, which not all of those backends have; without scales: there is none.
  WeightFormat compact{};
};

// All that are read here.
std::span<const BlockType> block_types();
// Null for a type that is not read here.
const BlockType* find_block_type(uint32_t id);
// Of a type that is not read here: its name, or "of no known name".
const char* unread_type_name(uint32_t id);

}  // namespace inferd
