// The gate of a gated activation, out = gate(g) * u.
#pragma once
#include <cstdint>

namespace inferd {

enum class Gate : int32_t {
  kSilu = 0,      // x / (1 + exp(-x))
  kGeluTanh = 1,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
};

}  // namespace inferd
