// How the sampler's kernels are laid out on the current device, and its launcher for plain greedy
// rows. Host code.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device/launch.h"
#include "cuda/sampler/sampler.h"

namespace inferd::cuda::sampler {

struct Layout {
  int32_t parts;        // blocks a row
  int32_t slice;        // logits a part
  bool on_chip;         // the slice lies in shared memory, else in the caller's scratch
  size_t shared_bytes;  // of a block

  // Floats of scratch a row.
  int64_t row_floats() const { return on_chip ? 0 : int64_t{parts} * slice; }
};

cudaError_t layout_for(int32_t vocab, Layout& layout);

// Of a batch whose rows are all plain greedy: see sampler_greedy.cu. `params` are checked.
cudaError_t greedy(const SampleParams& params, const Launch& launch);

}  // namespace inferd::cuda::sampler
