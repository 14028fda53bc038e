// The gated activation of the MLP and the plain sum. Raw device pointers; see activation.cu.
#pragma once
#include <cstdint>

#include "half_type.h"
#include "launch.h"

namespace inferd::cuda {

enum class Gate {
  kSilu,
  kGeluTanh,
};

// out [rows, width] = gate(gate_up[:, :width]) * gate_up[:, width:]. Packed, 16-byte aligned; width
// a multiple of 8, else cudaErrorInvalidValue.
cudaError_t gated_mul(Half type, Gate gate, void* out, const void* gate_up, int64_t rows,
                      int32_t width, const Launch& launch);

// inout += x over `count` values, a multiple of 8; 16-byte aligned.
cudaError_t add(Half type, void* inout, const void* x, int64_t count, const Launch& launch);

}  // namespace inferd::cuda
