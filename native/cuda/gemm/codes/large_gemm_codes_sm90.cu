// 1. As large_gemm_sm90.cu, of e4m3 codes on both sides: y = (s_x x) (s_w w)^T for many rows.
// 2. x [m, k] codes, packed, with a scale for each row, or for each row and 128 of k; w [n, k]
// codes,
//    packed, with a scale for each row, or for blocks of 128 x 128; y and bias as there.
// 3. As there. Operands are copied as 16-bit words, so that the producer is the same and a stage is
//    128 of k, one block of scales. A consumer multiplies the two halves of a tile's columns one
//    after the other, each into 64 sums that it adds to its 128 while the other consumer keeps the
//    tensor cores busy.
// 4. As there; y to be added is loaded once the products are done, from L2.
// 5. The tensor cores add up 128 of k in some 14 bits; the rest is f32. The same bits every time.
// 6. Compute capability 9.0; n a multiple of 8, k of 16; gated with scales of blocks n of 128.
// 7. 2 m n k flops (gated: 4).
// 8. Sums of 128 of k added up outside of the tensor cores: DeepSeek-V3, 2024; two consumers that
//    take turns: CUTLASS.
// 9. Not measured apart yet.
#include "cuda/gemm/large_gemm_launch.cuh"

namespace inferd::cuda {
namespace {

template <typename T>
cudaError_t launch_codes(const GemmArgs& args, const Launch& launch) {
  return args.w.format == kFloat8Blocks
             ? launch_gated<T, LargeOperands::kFloat8Blocks>(args, launch)
             : launch_gated<T, LargeOperands::kFloat8Rows>(args, launch);
}

}  // namespace

cudaError_t large_gemm_codes(const GemmArgs& args, const Launch& launch) {
  return args.type == Half::kBF16 ? launch_codes<__nv_bfloat16>(args, launch)
                                  : launch_codes<__half>(args, launch);
}

}  // namespace inferd::cuda
