// The kernel table of AVX-512 with byte dot products (VNNI): the shared kernel bodies compiled over
// simd_avx512.h with this file's own flags. Nothing here has external linkage but
// avx512vnni_kernels(), so no code for this instruction set can leak into other files.
#include "cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512DQ__) && defined(__AVX512VNNI__)
// The bodies are written over the `Simd` of the first header.
// clang-format off
#include "cpu/simd_avx512.h"
#include "cpu/attention_kernel.h"
#include "cpu/gemm_kernel.h"
#include "cpu/limits_kernel.h"
#include "cpu/vnni_kernel.h"
#include "cpu/rows_kernel.h"
#include "cpu/scan_kernel.h"
// clang-format on

namespace inferd::cpu {
namespace {

constexpr Kernels kTable = {
    .name = "avx512vnni",
    .panel_cols = kPanel,
    .tile_rows = kRows,
    .bf16_pairs = true,
    .quant_group = 4,
    .code_rows = kCodeRows,
    .gemm = {gemm<F32Panel>, gemm<F16Panel>, gemm<Bf16Panel>},
    .quant_gemm = {code_gemm<Int8Codes>, code_gemm<Int4Codes>},
    .quantize_tile = quantize_tile,
    .attention = {attention<F32Codec>, attention<F16Codec>, attention<Bf16Codec>},
    .to_f32 = {to_f32<F32Codec>, to_f32<F16Codec>, to_f32<Bf16Codec>},
    .from_f32 = {from_f32<F32Codec>, from_f32<F16Codec>, from_f32<Bf16Codec>},
    .rms_norm = rms_norm,
    .add = add,
    .silu_mul = silu_mul,
    .rotate = rotate,
    .max_value = max_value,
    .argmax = argmax,
    .clean_copy = clean_copy,
    .exp_sum = exp_sum,
    .count_better = count_better,
    .read_all = read_all,
    .fma_chains = fma_chains,
    .fma_step_flops = kFmaStepFlops,
    .dot_chains = dot_chains,
    .dot_step_ops = kDotStepOps,
};

}  // namespace

const Kernels* avx512vnni_kernels() { return &kTable; }

}  // namespace inferd::cpu
#else
namespace inferd::cpu {
const Kernels* avx512vnni_kernels() { return nullptr; }
}  // namespace inferd::cpu
#endif
