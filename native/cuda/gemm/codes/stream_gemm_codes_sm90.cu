// 1. As stream_gemm_sm90.cu, of e4m3 codes on both sides: y = (s_x x) (s_w w)^T for 17 to 128 rows,
//    with all that a product may have behind it.
// 2. x [m, k] codes, packed, with a scale for each row, or for each row and 128 of k; w [n, k]
//    codes, packed, with a scale for each row, or for blocks of 128 x 128; y f16, bf16 or f32, bias
//    of y's type.
// 3. As there. Operands are copied as 16-bit words, so that the queues are the same and a stage is
//    128 of k, one block of scales. Tiles are at most 128 rows of w, since a thread holds the sums
//    of a stage beside those of all.
// 4. As there.
// 5. The tensor cores add up 128 of k in some 14 bits; the rest is f32. Scales of blocks multiply
//    the sums of 128 of k, those of rows the sums of all. The same bits run to run.
// 6. Compute capability 9.0; k a multiple of 16; as there. Else cudaErrorInvalidValue.
// 7. Bytes n k: bound by memory.
// 8. Sums of 128 of k added up outside of the tensor cores: DeepSeek-V3, 2024.
// 9. Not measured apart yet.
#include "cuda/gemm/stream_gemm_launch.cuh"

namespace inferd::cuda {
namespace {

template <typename T>
StreamLauncher find(bool blocks, int32_t groups, int32_t columns) {
  return blocks ? find_launcher<T, StreamOperands::kFloat8Blocks>(groups, columns)
                : find_launcher<T, StreamOperands::kFloat8Rows>(groups, columns);
}

}  // namespace

StreamLauncher stream_codes_launcher(Half type, bool blocks, int32_t groups, int32_t columns) {
  return type == Half::kBF16 ? find<__nv_bfloat16>(blocks, groups, columns)
                             : find<__half>(blocks, groups, columns);
}

}  // namespace inferd::cuda
