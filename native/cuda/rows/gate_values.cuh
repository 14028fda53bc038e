// The gates of core/gate.h on the device, in float32. tanh is taken from one exponential,
// 1 - 2 / (1 + exp(2 y)).
#pragma once
#include "core/gate.h"
#include "cuda/device/common.cuh"

namespace inferd::cuda {

template <Gate kGate>
__device__ inline float gate_of(float x) {
  if constexpr (kGate == Gate::kSilu) {
    return silu(x);
  } else {
    const float y = 0.7978845608f * (x + 0.044715f * x * x * x);
    return x - x / (1.f + __expf(2.f * y));
  }
}

// gate(g) * u
template <Gate kGate>
__device__ inline float gated_value(float g, float u) {
  if constexpr (kGate == Gate::kClampedSwiglu) {
    g = fminf(g, 7.f);
    return __fdividef(g, 1.f + __expf(-1.702f * g)) * (fmaxf(-7.f, fminf(u, 7.f)) + 1.f);
  } else {
    return gate_of<kGate>(g) * u;
  }
}

}  // namespace inferd::cuda
