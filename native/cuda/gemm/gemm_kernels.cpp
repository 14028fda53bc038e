// See gemm_kernels.h.
#include "cuda/gemm/gemm_kernels.h"

#include <cstring>
#include <type_traits>

#include "cuda/gemm/large_gemm.h"
#include "cuda/gemm/small_gemm.h"
#include "cuda/gemm/stream_gemm.h"

namespace inferd::cuda {
namespace {

size_t one_variant(const GemmArgs&, std::span<GemmVariant, kGemmVariants>) { return 1; }

// Of kernels whose variants are cuts of a type of their own.
template <typename Cut, int32_t (*kCutsOf)(const GemmArgs&, std::span<Cut>)>
size_t cut_variants(const GemmArgs& p, std::span<GemmVariant, kGemmVariants> out) {
  static_assert(sizeof(Cut) <= sizeof(GemmVariant) && std::is_trivially_copyable_v<Cut>);
  std::array<Cut, kGemmVariants> cuts;
  const auto count = static_cast<size_t>(kCutsOf(p, cuts));
  for (size_t i = 0; i < count; ++i) std::memcpy(out[i].data(), &cuts[i], sizeof(Cut));
  return count;
}
template <typename Cut, cudaError_t (*kProduct)(const GemmArgs&, const Cut&, const Launch&)>
cudaError_t run_cut(const GemmArgs& p, const GemmVariant& variant, const Launch& launch) {
  Cut cut;
  std::memcpy(static_cast<void*>(&cut), variant.data(), sizeof(Cut));
  return kProduct(p, cut, launch);
}

// With fewer rows the small one leads; from here to 16 rows both are measured.
constexpr int32_t kStreamFrom = 9;

bool stream_takes(const GemmArgs& p) {
  if (p.x_scales != nullptr) return stream_gemm_takes(p);
  return plain_weights(p) && p.out == GemmOut::kHalf && p.m >= kStreamFrom && stream_gemm_takes(p);
}

// Products of norm_x lead inside a step up to so many rows, and further where x is read once: steps
// of Llama-3-8B on an H200, 1x128 3970 and 3983 us, with the norms apart 4068, with cuBLASLt for
// gate_up 4184 and 4216; 16x1024 see small_gemm.cu.
constexpr int32_t kNormedRows = 8;

bool small_takes(const GemmArgs& p) {
  const bool few = !p.norm_x || p.m <= kNormedRows || p.k <= kSmallGemmHeldColumns;
  return plain_weights(p) && few && p.m <= kSmallGemmRows && p.k % 8 == 0 && p.x_stride % 8 == 0;
}
cudaError_t run_small(const GemmArgs& p, const GemmVariant&, const Launch& launch) {
  return small_gemm(p, launch);
}

cudaError_t run_codes_few(const GemmArgs& p, const GemmVariant&, const Launch& launch) {
  return codes_few_gemm(p, launch);
}

cudaError_t run_small_codes(const GemmArgs& p, const GemmVariant&, const Launch& launch) {
  return small_gemm_codes(p, launch);
}

// Between the streaming GEMM and the large one.
bool batch_takes(const GemmArgs& p) { return p.m > kStreamGemmRows && batch_gemm_takes(p); }

// Fewer rows leave many multiprocessors without a tile. The row step of 1024 begins here.
constexpr int32_t kLargeRows = 769;

bool large_takes(const GemmArgs& p) {
  // Of codes there is nothing else behind the streaming GEMM.
  const int32_t from = p.x_scales != nullptr ? kStreamGemmRows + 1 : kLargeRows;
  return p.m >= from && large_gemm_takes(p);
}
cudaError_t run_large(const GemmArgs& p, const GemmVariant&, const Launch& launch) {
  return large_gemm(p, launch);
}

cudaError_t run_coded_few(const GemmArgs& p, const GemmVariant&, const Launch& launch) {
  return coded_few_gemm(p, launch);
}

// From kFewRows to kCodedSmallRows the small one leads, or is not far behind. Before Hopper
// there is no other.
bool coded_takes(const GemmArgs& p) {
  return coded_small_takes(p) && (p.m <= kCodedSmallRows || !coded_stream_takes(p));
}
cudaError_t run_coded(const GemmArgs& p, const GemmVariant&, const Launch& launch) {
  return coded_small_gemm(p, launch);
}

bool coded_many_takes(const GemmArgs& p) { return p.m > kCodedSmallRows && coded_stream_takes(p); }

constexpr GemmKernel kKernels[] = {
    {"small", small_takes, one_variant, run_small, kSmallGemmRows},
    {"codes_few", codes_few_takes, one_variant, run_codes_few, kFewRows},
    {"codes", small_gemm_codes_takes, one_variant, run_small_codes, kSmallGemmRows},
    {"stream", stream_takes, cut_variants<StreamGemmCut, stream_gemm_cuts>,
     run_cut<StreamGemmCut, stream_gemm>, 0},
    {"batch", batch_takes, cut_variants<BatchGemmCut, batch_gemm_cuts>,
     run_cut<BatchGemmCut, batch_gemm>, 0},
    {"large", large_takes, one_variant, run_large, 0},
    {"coded_few", coded_few_takes, one_variant, run_coded_few, 0},
    {"coded", coded_takes, one_variant, run_coded, 0},
    {"coded_stream", coded_many_takes, cut_variants<CodedCut, coded_stream_cuts>,
     run_cut<CodedCut, coded_stream_gemm>, 0},
};

}  // namespace

std::span<const GemmKernel> gemm_kernels() { return kKernels; }

}  // namespace inferd::cuda
