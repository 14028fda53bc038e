// 1. Products of groups of rows, each with a w of its own, gated or not: grouped_gemm.h.
// 2. x, w and y f16 or bf16.
// 3. The kernel of large_gemm_sm90.cu, whose clusters take their tiles from a list on the device:
//    256 rows of one group by 256 rows of its w, all columns of a tile's rows after each other.
// 4. Shared memory and registers as there.
// 5. f32 sums, rounded once to 16 bits; the same bits every time.
// 6. Compute capability 9.0. The grid follows from the tiles that there may be, so that recorded
//    graphs stay right. A group's last tile may have rows that belong to nobody: they are computed,
//    and not written.
// 7. 2 rows n k flops (gated: 4). The rows that fill up tiles are lost: of 1024 a group 11 %.
// 8. Gale et al. 2023 (MegaBlocks).
// 9. An H200, 128 groups, bf16, bursts of 13 launches: 1024 rows a group 753 TFLOP/s gated (768 by
//    2048) and 661 (2048 by 768), 256 rows 642 and 548. A prompt of 128x128 of Qwen3-30B-A3B, by
//    tiles of 32 pairs before: 1048 ms, by groups 274.
#include "cuda/experts/grouped_gemm.h"
#include "cuda/gemm/large_gemm_launch.cuh"

namespace inferd::cuda {
namespace {

template <typename T, bool kGated>
cudaError_t launch_groups(Half type, const GroupedGemmArgs& a, const Launch& launch) {
  const GemmArgs args{.type = type,
                      .out = GemmOut::kHalf,
                      .x = a.x,
                      .x_stride = a.k,
                      .w = plain_weight(type, a.w),
                      .y = a.y,
                      .y_stride = a.n,
                      .bias = nullptr,
                      .add_to_y = false,
                      .m = a.rows,
                      .n = a.n,
                      .k = a.k,
                      .gated = kGated};
  return launch_form<T, kGated, LargeOperands::kGroupedHalves>(args, launch,
                                                               {.groups = a.groups,
                                                                .w_step = a.w_step,
                                                                .tiles = a.tiles,
                                                                .count = a.tile_count,
                                                                .most = a.most_tiles});
}

template <typename T>
cudaError_t launch_groups(Half type, const GroupedGemmArgs& a, const Launch& launch) {
  return a.gated ? launch_groups<T, true>(type, a, launch)
                 : launch_groups<T, false>(type, a, launch);
}

}  // namespace

bool grouped_gemm_takes(const GroupedGemmArgs& args) {
  int device, major = 0, minor = 0;
  return args.rows > 0 && args.most_tiles > 0 && args.n > 0 && args.k > 0 && args.n % 8 == 0 &&
         args.k % 8 == 0 && cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0 && INFERD_MOST_MAJOR >= 9;
}

cudaError_t grouped_gemm(Half type, const GroupedGemmArgs& args, const Launch& launch) {
  if (!grouped_gemm_takes(args)) return cudaErrorInvalidValue;
  return type == Half::kBF16 ? launch_groups<__nv_bfloat16>(type, args, launch)
                             : launch_groups<__half>(type, args, launch);
}

}  // namespace inferd::cuda
