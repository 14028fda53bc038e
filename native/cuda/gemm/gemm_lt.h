// Linear layers of any size: cuBLASLt and our own kernels, the fastest for each shape.
//
// One object a device, used by the executor thread alone. tune() measures at start and may wait for
// the device; run() only enqueues and is safe under capture. No cuBLAS type is visible here, and
// gemm_lt.cpp is the only file that includes its header.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "cuda/device/launch.h"
#include "cuda/gemm/gemm_args.h"
#include "cuda/gemm/gemm_kernels.h"

namespace inferd::cuda {

// Rows are tuned for in steps: the smallest step that is not below `m`. Steps are 1, 2, 4, 8, 16,
// then powers of two and halfway between.
int32_t gemm_row_step(int32_t m);

// How a shape is computed and what was measured for it.
struct GemmChoice {
  const char* kernel = nullptr;  // one of ours; null: cuBLASLt
  GemmVariant variant{};         // of `kernel`
  float us = 0;            // median, for few rows with a small kernel ahead; 0 when not measured
  float first_us = 0;      // of the heuristic's first answer
  int32_t candidates = 0;  // algorithms measured
};

// All functions that can fail return null, or one sentence with static lifetime that says what
// failed.
class GemmLt {
 public:
  // `workspace`: device memory, 256-byte aligned, 32 MiB or more is best; owned by the
  // caller and shared by all calls, which therefore belong to one stream.
  static const char* create(void* workspace, size_t workspace_bytes, std::unique_ptr<GemmLt>& out);
  ~GemmLt();
  GemmLt(const GemmLt&) = delete;
  GemmLt& operator=(const GemmLt&) = delete;

  // Measures up to `most` of the heuristic's algorithms, and the kernels of gemm_kernels.h that
  // apply, for the shape of `args` and keeps the fastest for every call of that row step.
  // `weights`: weights of that shape, used in turn so that L2 does not hold the next one.
  // Overwrites y and scratch. Waits for the stream; spends about `budget_us` of device time.
  const char* tune(const GemmArgs& args, std::span<const WeightView> weights, int32_t most,
                   float budget_us, const Launch& launch);

  // Enqueues. An untuned shape takes the first kernel that computes it, else the heuristic's first
  // answer. With norm_x the first of our kernels that takes it; else rms_norm runs ahead.
  const char* run(const GemmArgs& args, const Launch& launch);

  // What run() would do for `args`, without norm_x; null when neither tuned nor run yet.
  const GemmChoice* choice(const GemmArgs& args) const;

 private:
  const char* run_codes(const GemmArgs& args, const Launch& launch);
  const char* run_kernel(const GemmArgs& args, const Launch& launch);

  struct Impl;
  explicit GemmLt(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace inferd::cuda
