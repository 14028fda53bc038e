// The rotation of rotary embeddings, by which kernels agree to the bit. Device code of rope_kv.cu
// and attention_decode_rope.cuh; latent_cache.cu takes its angles from here.
#pragma once
#include <cuda_runtime.h>

namespace inferd::cuda {

// cos and sin of position * frequency, times `factor`. The angle is reduced in double, so that
// position 10^6 keeps 24 bits.
__device__ inline float2 turn_of(int position, float frequency, float factor) {
  constexpr double kTurn = 6.283185307179586;
  const double turns = static_cast<double>(position) * (static_cast<double>(frequency) / kTurn);
  float sin_value, cos_value;
  sincospif(static_cast<float>(2. * (turns - floor(turns))), &sin_value, &cos_value);
  return make_float2(cos_value * factor, sin_value * factor);
}

// x of a pair, where `across` is the other of it: -x_{i+r/2} for x_i, x_i for x_{i+r/2}.
__device__ inline float turned(float x, float across, float2 turn) {
  return fmaf(x, turn.x, across * turn.y);
}

}  // namespace inferd::cuda
