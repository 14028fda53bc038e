// The table of a vector instruction set: the bodies of the headers that were included before this
// one. Included last, by the kernels_<isa>.cpp that are written over `Simd`.
#pragma once
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

// Less the quantized products: see with_codes() of code_kernel.h and with_widening() of
// dequant_kernel.h.
constexpr Kernels vector_table(const char* name) {
  return with_float8({
      .name = name,
      .panel_cols = kPanel,
      .tile_rows = kRows,
      .bf16_pairs = true,
      .quant_group = 1,
      .code_rows = 0,
      .gemm = {gemm<F32Panel>, gemm<F16Panel>, gemm<Bf16Panel>},
      .quantize_tile = nullptr,
      .attention = {attention<F32Codec, AttentionScratch>, attention<F16Codec, AttentionScratch>,
                    attention<Bf16Codec, AttentionScratch>, attention<Int8Codec, AttentionScratch>,
                    attention<Float8Codec, AttentionScratch>},
      .latent_attention = {attention<F32Codec, LatentScratch>, attention<F16Codec, LatentScratch>,
                           attention<Bf16Codec, LatentScratch>, attention<Int8Codec, LatentScratch>,
                           attention<Float8Codec, LatentScratch>},
      .to_f32 = {to_f32<F32Codec>, to_f32<F16Codec>, to_f32<Bf16Codec>},
      .from_f32 = {from_f32<F32Codec>, from_f32<F16Codec>, from_f32<Bf16Codec>},
      .rms_norm = rms_norm,
      .add = add,
      .gated_mul = {gated_mul<silu>, gated_mul<gelu_tanh>, clamped_swiglu},
      .scale_cap = scale_cap,
      .rotate = rotate,
      .max_value = max_value,
      .argmax = argmax,
      .clean_copy = clean_copy,
      .exp_sum = exp_sum,
      .count_better = count_better,
      .read_all = read_all,
      .fma_chains = fma_chains,
      .fma_step_flops = kFmaStepFlops,
      .dot_chains = nullptr,
      .dot_step_ops = 0,
  });
}

}  // namespace
}  // namespace inferd::cpu
