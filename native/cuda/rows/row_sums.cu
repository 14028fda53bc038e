// 1. sums[e.to] = (e.fresh ? 0 : sums[e.to]) + x[e.first] + .. + x[e.first + e.count - 1] for each
//    entry e; the conversion from 16 bits is fused.
// 2. sums [any, hidden] f32, in and out, 8-byte aligned; x [rows, hidden] f16 or bf16, in, 4-byte
//    aligned; entries [count, 4] int32, in. Packed rows.
// 3. Block (i, j) owns columns [256 i, 256 i + 256) of entry j, a thread two of them, for which it
//    walks all rows in order. Lanes take neighbouring columns: a warp reads 128 bytes of a row.
// 4. No shared memory, 32 registers; eight rows are fetched ahead of the additions.
// 5. Float32, one row after the other: a sum in pieces has the bits of one at once. The error grows
//    with the number of rows as that of any running sum, 2^-24 of the partial sums each.
// 6. Any even hidden size, any architecture from sm_80; else cudaErrorInvalidValue.
// 7. Reads 2 hidden bytes a row once and writes 4 hidden bytes an entry: 16 MiB for 2048 rows of
//    4096, one addition for 2 bytes. Bound by the latency of one walk, not by bandwidth, and small
//    beside the step that made the rows. Not timed: no GPU was at hand.
// 8. No method.
// 9. Partial sums over rows in parallel would be faster, and their bits would depend on how a
//    prompt was cut into steps.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/rows/row_sums.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kColumns = 2 * kThreads;  // of a block
constexpr int kAhead = 8;               // rows in flight
constexpr int kMostEntries = 65535;     // the grid along y
static_assert(kThreads % kWarp == 0);

template <typename T>
__global__ void sum_rows_kernel(float* sums, const uint32_t* x, int32_t pairs,
                                const int32_t* entries) {
  let_next_start();
  wait_for_previous();
  const int32_t* entry = entries + 4 * blockIdx.y;
  const int32_t first = entry[1], count = entry[2];
  const int32_t pair = blockIdx.x * kThreads + threadIdx.x;
  if (pair >= pairs) return;
  float2* to = reinterpret_cast<float2*>(sums) + static_cast<int64_t>(entry[0]) * pairs + pair;
  float2 sum = entry[3] != 0 ? float2{0.f, 0.f} : *to;
  const uint32_t* from = x + static_cast<int64_t>(first) * pairs + pair;
  int32_t row = 0;
  for (; row + kAhead <= count; row += kAhead) {
    uint32_t ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ahead[i] = from[static_cast<int64_t>(row + i) * pairs];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const float2 value = unpack2<T>(ahead[i]);
      sum.x += value.x;
      sum.y += value.y;
    }
  }
  for (; row < count; ++row) {
    const float2 value = unpack2<T>(from[static_cast<int64_t>(row) * pairs]);
    sum.x += value.x;
    sum.y += value.y;
  }
  *to = sum;
}

}  // namespace

cudaError_t sum_rows(Half type, const RowSumArgs& args, const Launch& launch) {
  const auto& [sums, x, hidden, entries, count] = args;
  if (hidden <= 0 || hidden % 2 != 0 || count < 0 || count > kMostEntries)
    return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((hidden + kColumns - 1) / kColumns);
  const LaunchShape shape = {.grid = dim3(blocks, static_cast<unsigned>(count)),
                             .threads = kThreads};
  const auto kernel =
      type == Half::kBF16 ? sum_rows_kernel<__nv_bfloat16> : sum_rows_kernel<__half>;
  return launch_kernel(kernel, shape, launch, sums, static_cast<const uint32_t*>(x), hidden / 2,
                       entries);
}

}  // namespace inferd::cuda
