// 1. y = x w^T (+ bias) (+ y), or y = silu(x w_gate^T) * (x w_up^T), for the 17 to 128 rows of a
//    decode batch, in one launch.
// 2. x [m, k] f16 or bf16, 16-byte aligned rows; w [n, k] ([2 n, k] gated) of the same type,
//    packed, 16-byte aligned; y [m, n] of that type or f32, any stride; bias [n] ([2 n]) of y's
//    type.
// 3. A block takes tiles of 64 or 128 tokens x 48 to 256 rows of w, tokens as the 64-row side of
//    wgmma, so that tiles divide n in steps of 16 and y needs no transposing. A gated tile is half
//    gate rows and half the matching up rows: one thread holds both factors.
//
//      warps 0 .. 4 g - 1   g warpgroups: 64 tokens x all rows of the tile
//      last warp            one thread asks for the boxes of w and x
//
//    Blocks of a cluster lie side by side along n (`across`: each fetches part of the tokens, for
//    all), m (`down`: each fetches part of the weights, for all) and k (`splits`). Splits send each
//    other the sums of the columns that the other stores, st.async, counted by a barrier; the order
//    of addition is fixed. Without splits blocks take tiles in turn and the queue runs on.
// 4. Shared memory: 2 to 4 stages of x and as many of w as fit in 227 KB, or in 113 KB when two
//    blocks, of this kernel or the next, share a multiprocessor. A stage is 64 values of k (128 in
//    narrow tiles), 128-byte swizzle. 77 to 189 registers.
// 5. f32 accumulation; one rounding at the end, also of the gated product. Relative error of the
//    exact product of the rounded inputs 2^-9 (bf16), 2^-11 (f16). The same bits run to run.
// 6. Compute capability 9.0; k and x_stride multiples of 8; gated only to 16-bit y, without splits.
//    Else cudaErrorInvalidValue.
// 7. Bytes 2 n k: bound by memory. H200, back to back with early starts, best cut, us (beside it
//    cuBLASLt's best of 8, with the silu kernel for gate_up; the read ceiling of w), taken before
//    the last change of (9) and, above 128 rows, with tiles of 192 tokens that are gone:
//
//      m      qkv             o              gate_up         down            head
//      32     15.3 (15.8 11)  12.5 (13.3 7)  59.5 (64.8 52)  32.6 (32.8 26)  254 (259 232)
//      64     15.5 (15.5)     12.6 (11.8)    60.0 (62.3)     32.6 (34.0)     274 (264)
//      128    18.8 (16.4)     17.1 (13.0)    61.7 (67.7)     36.6 (37.1)     300 (280)
//      192    21.5 (20.2)     19.3 (20.3)    89.8 (78.4)     42.1 (43.8)     330 (326)
//      256    23.7 (20.6)     24.0 (15.8)    104  (97.5)     62.7 (48.8)     404 (388)
//
//    What is left over memory is the start and the end: 3 to 9 us in which no weights arrive.
// 8. Split k with exchange in shared memory of a cluster, warps of different roles: CUTLASS 3
//    (Thakkar et al. 2023) and DeepGEMM; early starts as in small_gemm.cu.
// 9. Tried, H200, us:
//    - a release at cluster scope with each stage given back: a fence of all memory, 1 us a stage;
//      gate_up at m = 128 81.4 instead of 60.8, down 61 instead of 38.6
//    - sums exchanged by plain remote stores between two cluster barriers with release: o at m = 32
//      16.3 instead of 14.6; with half the memory a block, so that the next starts in time: 12.5
//    - loops over the sums unrolled, 100 KB of code, against rolled and with x evicted from L2 like
//      anything else: alone 4 to 9 faster in gate_up, 3 in down, 1 in the others, but not among a
//      layer's other kernels: without attention at m = 32, 64, 128 149.7, 134.9, 154.6 against
//      137.1, 135.6, 153.1 (cuBLASLt 131.1, 136.8, 146.0). Taken for cold instructions, and the
//      loss alone for misses of x: here loops are rolled and x is kept (evict_last); not timed yet
//    - sums that start from bias and y: the compiler then runs wgmma one by one
//    - more than 128 tokens, by three warpgroups and by more blocks along m: as in (7), and a step
//      of 256x128 2 % longer; three warpgroups with 224 columns: not enough registers
//    - clusters of 4 and 8: some H200 hold only 30 and 15 of them (the cut asks the device)
//    - weights laid out tile by tile, 28 KB in a row for each stage: gate_up at m = 128 61.9
//      instead of 62.8, o and down no faster, so the order of rows in memory is not what is lost
//    - the first 8 to 24 MB of the next weights fetched into L2 meanwhile (bulk prefetch), by
//      norms, rope, attention or the tail of this kernel: whole steps 16x1024 5.2 to 5.9 ms instead
//      of 5.26, 128x128 5.9 to 6.4 instead of 5.93; the lines are read from memory a second time
//    - the norm ahead taken in: consumers sum the squares of x from the stages that they multiply
//      and scale the sums by 1 / rms. Alone 1.4 to 4.7 more than without a norm, where the norm is
//      1.9 to 2.8: qkv at m = 64 17.8 against 18.0 with the norm apart and 16.0 without, gate_up at
//      m = 128 70.4, 70.5, 67.7; beside the products instead of ahead of them 18.1 and 71.2. Early
//      starts hide most of a norm: steps 64x128 5222 to 5278 instead of 5152 to 5196, 128x128 6074
//      to 6263 instead of 6001 to 6154
#include "cuda/gemm/stream_gemm_launch.cuh"

namespace inferd::cuda {

int32_t stream_gemm_resident(int32_t size, bool halved) {
  constexpr int kGroups = 1, kColumns = kNarrowestTile;  // any: shared memory is what bounds all
  using S = StreamTile<kGroups, kColumns>;
  const auto kernel = stream_gemm_kernel<__nv_bfloat16, kGroups, kColumns, StreamOperands::kHalves>;
  const int bytes = halved ? kHalfBytes : kWholeBytes;
  cudaLaunchAttribute shape = {};
  shape.id = cudaLaunchAttributeClusterDimension;
  shape.val.clusterDim.x = static_cast<unsigned>(size);
  shape.val.clusterDim.y = shape.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(size));
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.attrs = &shape;
  config.numAttrs = 1;
  int clusters = 0;
  const bool known = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          bytes) == cudaSuccess &&
                     cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
  return known ? clusters : 0;
}

StreamLauncher stream_launcher(Half type, int32_t groups, int32_t columns) {
  constexpr StreamOperands kOperands = StreamOperands::kHalves;
  return type == Half::kBF16 ? find_launcher<__nv_bfloat16, kOperands>(groups, columns)
                             : find_launcher<__half, kOperands>(groups, columns);
}

}  // namespace inferd::cuda
