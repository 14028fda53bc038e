// 1. As small_gemm.cu, of weights that are 8-bit codes with scales: y = x (s q)^T for m <= 16 rows,
//    with all that a product may have before and behind it.
// 2. x f16 or bf16; w [n, k] e4m3 or int8, packed, 16-byte aligned rows; f32 scales of each row, of
//    each row and 128 columns, or of 128 rows and 128 columns; y as there.
// 3. As there; a lane's 16 bytes of a row are 16 weights, which it widens in registers to the pairs
//    that the product takes, with the columns of x in the same order. A scale of a row multiplies
//    its sum; scales of 128 columns multiply the sums of these, which are 8 products of the tensor
//    cores.
// 4. As there, for pieces of twice as many columns.
// 5. Codes are exact in 16 bits and x is not rounded, so that the error is that of the product of
//    16-bit numbers. A weight of the norm ahead multiplies x, rounded once.
// 6. From sm_80; k a multiple of 16; norms up to kSmallGemmHeldColumns columns.
// 7. Bytes n * k: bound by memory. Widening takes 7 instructions for 4 weights of a lane.
// 8. Codes widened in registers between shared memory and the tensor cores: Marlin (Frantar et al.
//    2024).
// 9. Not measured apart yet.
#include "cuda/gemm/small_gemm_tile.cuh"

namespace inferd::cuda {
namespace {

template <typename T, typename Chunks>
cudaError_t dispatch_out(const GemmArgs& p, const Launch& launch) {
  return p.out == GemmOut::kF32 ? small_gemm_as<T, Chunks, float>(p, launch)
                                : small_gemm_as<T, Chunks, T>(p, launch);
}

template <typename T>
cudaError_t dispatch_codes(const GemmArgs& p, const Launch& launch) {
  if (p.w.format.codes == CodeType::kInt8)
    return dispatch_out<T, CodeChunks<T, CodeType::kInt8, false>>(p, launch);
  return p.w.format.block_cols > 0
             ? dispatch_out<T, CodeChunks<T, CodeType::kFloat8, true>>(p, launch)
             : dispatch_out<T, CodeChunks<T, CodeType::kFloat8, false>>(p, launch);
}

}  // namespace

bool small_gemm_codes_takes(const GemmArgs& p) {
  const WeightFormat& f = p.w.format;
  return is_scaled_rows(f) && (f.codes == CodeType::kFloat8 || f.block_cols == 0) &&
         (f.block_cols == 0 ? f.block_rows == 1 : f.block_cols == kScaleColumns) &&
         p.x_scales == nullptr && p.m >= 1 && p.m <= kSmallGemmRows && p.n >= 1 && p.k >= 16 &&
         p.k % 16 == 0 && p.x_stride % 8 == 0 &&
         (!p.norm_x || (p.norm_weight != nullptr && p.k <= kSmallGemmHeldColumns)) &&
         !((p.gated || p.norm_x) && (p.add_to_y || p.out == GemmOut::kF32));
}

cudaError_t small_gemm_codes(const GemmArgs& p, const Launch& launch) {
  if (!small_gemm_codes_takes(p)) return cudaErrorInvalidValue;
  return p.type == Half::kBF16 ? dispatch_codes<__nv_bfloat16>(p, launch)
                               : dispatch_codes<__half>(p, launch);
}

}  // namespace inferd::cuda
