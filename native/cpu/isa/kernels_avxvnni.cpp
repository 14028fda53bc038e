// The kernel table of AVX2 with the byte dot products of AVX-VNNI: the shared kernel bodies
// compiled over simd_avx2.h with this file's own flags. Nothing here has external linkage but
// avxvnni_kernels(), so no code for this instruction set can leak into other files.
#include "cpu/isa/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && defined(__AVXVNNI__)
// The bodies are written over the `Simd` of the first header.
// clang-format off
#include "cpu/simd/simd_avx2.h"
#include "cpu/isa/attention_kernel.h"
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/limits_kernel.h"
#include "cpu/isa/bytes_avx2.h"
#include "cpu/isa/dot_vpdpbusd.h"
#include "cpu/isa/code_kernel.h"
#include "cpu/isa/rows_kernel.h"
#include "cpu/isa/scan_kernel.h"
#include "cpu/isa/kernel_table.h"
// clang-format on

namespace inferd::cpu {
namespace {

constexpr Kernels kTable = with_codes(vector_table("avxvnni"));
static_assert(multiplies_all(kTable));

}  // namespace

const Kernels* avxvnni_kernels() { return &kTable; }

}  // namespace inferd::cpu
#else
namespace inferd::cpu {
const Kernels* avxvnni_kernels() { return nullptr; }
}  // namespace inferd::cpu
#endif
