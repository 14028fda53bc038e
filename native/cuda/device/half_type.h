// The 16-bit type of activations and weights.
#pragma once

namespace inferd::cuda {

enum class Half { kF16, kBF16 };

}  // namespace inferd::cuda
