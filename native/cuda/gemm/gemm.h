// y = x w^T for the backend: by cuBLASLt or a kernel of ours, as gemm_lt.h chooses. cuBLASLt is
// found when the process starts to use a GPU. Without cuBLAS headers at build time this has no
// products, and the factory says so.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "cuda/device/launch.h"
#include "cuda/gemm/gemm_args.h"

namespace inferd::cuda {

class Gemm {
 public:
  virtual ~Gemm() = default;
  // Enqueues. Throws Error(kDevice).
  virtual void run(const GemmArgs& args, const Launch& launch) = 0;
  // At start: measures up to `most` ways to compute `args` with `weights` in turn, in about
  // `budget_us` of device time, and keeps the best. Overwrites y.
  virtual void tune(const GemmArgs& args, std::span<const WeightView> weights, int32_t most,
                    float budget_us, const Launch& launch) = 0;
};

// One sentence when no product can run, else "".
std::string missing_cublas();
// "13.1.1", or "" when there is none.
std::string cublas_version();
// Allocates what products need. Calls belong to one stream.
std::unique_ptr<Gemm> make_gemm();

}  // namespace inferd::cuda
