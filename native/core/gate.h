// The gate of a gated activation, out = gate(g) * u.
#pragma once
#include <cstdint>

namespace inferd {

enum class Gate : int32_t {
  kSilu = 0,      // x / (1 + exp(-x))
  kGeluTanh = 1,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  // x / (1 + exp(-1.702 x)) of x = min(g, 7), and 1 + max(-7, min(u, 7)) in place of u (gpt-oss)
  kClampedSwiglu = 2,
};
constexpr int32_t kGates = 3;

}  // namespace inferd
