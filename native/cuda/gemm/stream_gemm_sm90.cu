// 1. y = x w^T (+ bias) (+ y), or y = silu(x w_gate^T) * (x w_up^T), for the 9 to 128 rows of a
//    decode batch, in one launch; best from 17.
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
//    other the sums of the columns that the other stores, st.async, counted by a barrier; warps
//    without a token send none, and the order of addition is fixed. Without splits blocks take
//    tiles in turn and the queue runs on; plain and gated ones go to y straight from the registers.
// 4. Shared memory: 2 to 4 stages of x and as many of w as fit in 227 KB, or in 113 KB when two
//    blocks, of this kernel or the next, share a multiprocessor. A stage is 64 values of k (128 in
//    narrow tiles), 128-byte swizzle. 96 to 222 registers; tiles of 128 x 96, 224 and 256 keep
//    up to 26 values more in local memory.
// 5. f32 accumulation; one rounding at the end, also of the gated product. Relative error of the
//    exact product of the rounded inputs 2^-9 (bf16), 2^-11 (f16). The same bits run to run.
// 6. Compute capability 9.0; k and x_stride multiples of 8; gated only to 16-bit y, without splits.
//    Else cudaErrorInvalidValue.
// 7. Bytes 2 n k: bound by memory. H200, back to back with early starts, best cut, us (beside it
//    cuBLASLt's best of 8, with the silu kernel for gate_up; the read ceiling of w):
//
//      m      qkv             o              gate_up         down            head
//      32     15.3 (15.9 11)  11.3 (13.2 7)  56.6 (59.2 51)  31.9 (32.8 26)  253 (253 230)
//      64     15.7 (15.6)     12.0 (12.4)    57.1 (61.4)     33.2 (34.0)     278 (260)
//      128    19.1 (16.4)     15.5 (13.0)    58.8 (67.2)     36.3 (36.9)     303 (275)
//
//    These are loops of a few ms. In step after step the card is at its limit of 700 W, and its
//    clock sinks from 1,980 MHz to some 1,955 at 1 row, 1,780 at 64, 1,580 at 128 and 1,480 at 256.
//    Products of 128 rows in loops of 2 ms and of 0.2 s, us, and MHz at the end of these
//    (cuBLASLt's gate_up without the silu kernel):
//
//               qkv             o               gate_up         down
//      cuBLASLt 17.9 18.2 1710  14.5 14.3 1980  65.6 67.7 1470  38.2 39.5 1545
//      best cut 18.8 19.2 1860  15.6 15.3 1950  61.8 66.8 1425  35.2 40.0 1575
//
//    Then shorter gaps gain little, as the card spends what they save on its clock. What leads in
//    a short loop leads in a long one or comes within 3 % of it, and so is chosen by short ones.
//    Copies alone, without a product, take 53 us for gate_up, with the x of 128 rows too. Stamps of
//    the clock in a layer of 64 rows, us: from the first weights used to the last wgmma 10.5 (qkv),
//    7.3 (o), 49.9 (gate_up), 26.3 (down); from there to the end of the kernel 1.6, 2.3, 2.2, 3.8,
//    which is cluster, exchange and stores; from there to the next product 1 where no kernel stands
//    between, 5 with a norm, 15 with rope and attention, of which reading keys and values is 7.5.
// 8. Split k with exchange in shared memory of a cluster, warps of different roles: CUTLASS 3
//    (Thakkar et al. 2023) and DeepGEMM; early starts as in small_gemm.cu.
// 9. Tried, H200, us:
//    - a release at cluster scope with each stage given back: a fence of all memory, 1 us a stage;
//      gate_up at m = 128 81.4 instead of 60.8, down 61 instead of 38.6
//    - sums exchanged by plain remote stores between two cluster barriers with release: o at m = 32
//      16.3 instead of 14.6; with half the memory a block, so that the next starts in time: 12.5
//    - sums finished 32 columns after 32 in a loop, their registers found by comparing, for fear of
//      cold code: up to 10 in which no weights arrive; gate_up at m = 32, 64, 128 67.4, 64.2, 68.6
//      instead of 56.4, 56.6, 58.6, a layer with norms and attention 146.0, 143.1, 165.7 instead of
//      130.1, 138.4, 155.1. With a bias or an old y, and without splits, it is still done so
//    - the straight code gone through once, without effect, while the kernel ahead still runs: no
//      shorter when it counts, and at m = 128 gate_up 66.6 (registers)
//    - sums put in shared memory and sent by bulk copies: o at m = 64 13.2, qkv at m = 128 21.7,
//      where at the time st.async took 12.2 and 20.3
//    - 2, 3, 5 or 6 stages of x at most instead of 4: layers of 32, 64, 128 rows 151, 165, 214;
//      132, 142, 170; the others as 4 (128.7, 137.6, 154)
//    - sums that start from bias and y: the compiler then runs wgmma one by one
//    - more than 128 tokens, by three warpgroups and by more blocks along m: gate_up at m = 192 and
//      256 89.8 and 104 (cuBLASLt 78.4 and 97.5), a step of 256x128 2 % longer; three warpgroups
//      with 224 columns: not enough registers
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
