// The kernel table of NEON with byte matrix products (i8mm): the shared kernel bodies compiled over
// simd_neon.h with this file's own flags. Nothing here has external linkage but
// neoni8mm_kernels(), so no code for this instruction set can leak into other files.
#include "cpu/isa/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_MATMUL_INT8)
// The bodies are written over the `Simd` of the first header.
// clang-format off
#include "cpu/simd/simd_neon.h"
#include "cpu/isa/attention_kernel.h"
#include "cpu/isa/gemm_kernel.h"
#include "cpu/isa/limits_kernel.h"
#include "cpu/isa/dot_neon.h"
#include "cpu/isa/code_kernel.h"
#include "cpu/isa/rows_kernel.h"
#include "cpu/isa/scan_kernel.h"
#include "cpu/isa/kernel_table.h"
// clang-format on

namespace inferd::cpu {
namespace {

constexpr Kernels kTable = with_codes(vector_table("neoni8mm"));
static_assert(multiplies_all(kTable));

}  // namespace

const Kernels* neoni8mm_kernels() { return &kTable; }

}  // namespace inferd::cpu
#else
namespace inferd::cpu {
const Kernels* neoni8mm_kernels() { return nullptr; }
}  // namespace inferd::cpu
#endif
