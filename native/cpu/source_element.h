// One number of a row as a checkpoint stores it, for what packs weights.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/half.h"
#include "core/tensor.h"

namespace inferd::cpu {

// Element k of a row of f32, f16 or bf16, which may lie at any byte: checkpoints promise no
// alignment.
inline float source_f32(const char* row, DType dtype, int64_t k) {
  if (dtype == DType::kF32) {
    float f;
    std::memcpy(&f, row + k * 4, 4);
    return f;
  }
  uint16_t h;
  std::memcpy(&h, row + k * 2, 2);
  return dtype == DType::kF16 ? f16_to_f32(h) : bf16_to_f32(h);
}

}  // namespace inferd::cpu
