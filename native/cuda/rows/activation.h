// The gated activation of the MLP, the gate of whole rows, and the plain sum. Raw device pointers;
// see activation.cu.
#pragma once
#include <cstdint>

#include "core/gate.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

// out [rows, width] = gate(gate_up[:, :width]) * gate_up[:, width:]. Packed, 16-byte aligned; width
// a multiple of 8, else cudaErrorInvalidValue.
cudaError_t gated_mul(Half type, Gate gate, void* out, const void* gate_up, int64_t rows,
                      int32_t width, const Launch& launch);

// inout += scale * x over `count` values, a multiple of 8; 16-byte aligned.
cudaError_t add(Half type, void* inout, const void* x, int64_t count, float scale,
                const Launch& launch);

// inout[r] /= 1 + exp(-logits[r * logit_stride]) for `rows` rows of `width`, packed, 16-byte
// aligned, `logits` f32; width a multiple of 8, rows * width / 8 below 2^31, else
// cudaErrorInvalidValue.
cudaError_t gate_rows(Half type, void* inout, const float* logits, int64_t logit_stride,
                      int64_t rows, int32_t width, const Launch& launch);

// x *= scale, then, for cap > 0, cap tanh(x / cap); float32.
cudaError_t cap_logits(float* x, int64_t count, float scale, float cap, const Launch& launch);

}  // namespace inferd::cuda
