// 1. y = x w^T (+ bias) (+ y), or gated y = silu(x w_gate^T) * (x w_up^T), for many rows, for
//    Hopper. The gated form never writes the [m, 2 n] product.
// 2. x [m, k] and w [n, k] (gated: [2 n, k], gate rows first) f16 or bf16, y [m, n] of that type,
//    bias of it or null; rows 16-byte aligned, w packed: see gemm_args.h.
// 3. One block an SM, which takes tiles of 128 rows of x by 256 rows of w in a fixed order
//    (large_gemm_tile.cuh), in clusters of two whose tiles lie below one another:
//
//      warpgroup 0   one thread: its block's 128 rows of x, 128 of the rows of w for both blocks
//      warpgroup 1   rows 0 .. 63 of the tile: product, then bias, gate, addition, store
//      warpgroup 2   rows 64 .. 127
//
//    y of a tile is 128 x 256, or, gated, 128 x 128: 128 gate rows of w and the same 128 up rows,
//    so that a thread holds both factors of an output.
// 4. 192 KB for 4 stages of 64 of k; 32 KB through which y leaves, 4 KB a warp, by tensor stores
//    that run under the next product. 240 registers a consumer thread, of which 128 are sums and 64
//    y to be added, loaded under the last of the product; 24 in the producer. No spills.
// 5. f32 sums, bias, gate and addition, rounded once to 16 bits: relative error below 2^-8 (bf16)
//    and 2^-11 (f16). The same bits every time.
// 6. Compute capability 9.0; n, k and strides multiples of 8. Else cudaErrorInvalidValue.
// 7. 2 m n k flops (gated: 4), bound by power: an H200 holds 690 W at 1.2 .. 1.45 GHz. bf16, ours /
//    cuBLASLt (gated: with gated_mul; product alone), TFLOP/s of 989, in turn, each by itself for
//    0.5 s, up to 4096 rows 0.2 s, of which the second half counts:
//      rows    6144x4096   4096x4096 adding   4096x14336 adding   14336x4096 gated
//      16384   659 / 707       631 / 675          667 / 683       684 / 671 (699)
//      4096    663 / 686       635 / 642          679 / 656       674 / 669 (707)
//      2048    652 / 656       625 / 637          671 / 653       675 / 655 (680)
//      1024    564 / 621       617 / 576          672 / 610       675 / 638 (678)
//      512     538 / 592       396 / 540          447 / 617       596 / 625 (669)
//    8192^3 in five runs: 671 .. 681 / 690 .. 698. Turns of one run differ by up to 4 %, runs by 3:
//    compare within a run only. With 16384 rows and no gate a tile takes 3.6 .. 4.2 us more than
//    cuBLASLt's time shared out, for k of 4096 and 14336 alike: what is left to gain is at its end.
// 8. Warp specialisation as in CUTLASS's cooperative kernels; gated tiles of two halves as in
//    TensorRT-LLM's gemm_swiglu.
// 9. Tried, H200, m = 16384, TFLOP/s of 6144x4096 / 4096x4096 adding / gated / 4096x14336 adding,
//    below cuBLASLt (gated: with gated_mul) of the same run:
//      run 1, y through shared memory: cuBLASLt        707 / 675 / 671 / 683
//        kept: 128x256, cluster of 2, hints to L2      659 / 631 / 684 / 667
//        no hints                                      654 / 630 / 678 / 668
//        no hints, no cluster: more of L2              631 / 600 / 656 / 645
//        no hints, 128x128, consumers in turns         641 / 597 / 658 / 617
//      run 2, y in 16 bytes from registers: cuBLASLt   714 / 676 / 678 / 682
//        128x256, cluster of 2                         662 / 637 / 686 / 680
//        no cluster                                    658 / 629 / 681 / 664
//        128x128, consumers in turns                   651 / 628 / 657 / 635
//      run 3, as run 2: cuBLASLt                       693 / 661 / 662 / 673
//        128x256, cluster of 2                         652 / 627 / 671 / 663
//        bands of 4096 rows: 27 % more device memory   642 / 617 / 656 / 656
//        bands of 4096, 256x128, cluster of 2          633 / 605 / 650 / 641
//        bands of 4096, 64x256, consumers in turns     594 / 573 / 604 / 587
//    In percent of cuBLASLt of its run the kept one is at 93 / 93 / 102 / 98, the stores from
//    registers at 93 .. 94 / 94 .. 95 / 101 / 98 .. 100: no more than a gain where gated and a loss
//    where y is added. With fewer rows only run 1's were measured, and the kept one was the best of
//    them or within 0.3 %, but for 128x128 in turns where that still lost to cuBLASLt: 512 rows
//    (4096x4096 511, 4096x14336 572) and 1024 rows (6144x4096 589).
//    Device memory read, 4096 rows, gated, no hints, bands of 2048 / 4096: 948 / 1204 MB, of which
//    x and w are 268: L2 keeps nothing of x from column to column. Clusters of 4, where an SM in 33
//    stays idle, and 128x128 without turns: 5 .. 10 % less (bursts). Stores that pass by L2
//    (st.cs): no change. Arriving at a cluster's barriers with .release.cluster, a fence of all
//    memory: 530 instead of 680.
#include "cuda/gemm/large_gemm_launch.cuh"

namespace inferd::cuda {
namespace {

bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

bool large_gemm_takes(const GemmArgs& args) {
  int device, major = 0, minor = 0;
  const bool codes = float8_operands(args);
  const int32_t unit = codes ? 16 : 8;  // 16 bytes
  // Halves of a tile lie in one block of w each.
  const bool whole = args.w.format != kFloat8Blocks || !args.gated || args.n % 128 == 0;
  return (codes || plain_weights(args)) && whole && args.m > 0 && args.n > 0 && args.k > 0 &&
         args.n % 8 == 0 && args.k % unit == 0 && args.x_stride % unit == 0 &&
         args.y_stride % 8 == 0 && args.out == GemmOut::kHalf && !(args.gated && args.add_to_y) &&
         !args.norm_x && aligned16(args.x) && aligned16(args.w.codes) && aligned16(args.y) &&
         cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0 && INFERD_MOST_MAJOR >= 9;
}

cudaError_t large_gemm(const GemmArgs& args, const Launch& launch) {
  if (!large_gemm_takes(args)) return cudaErrorInvalidValue;
  if (args.x_scales != nullptr) return large_gemm_codes(args, launch);
  return args.type == Half::kBF16
             ? launch_gated<__nv_bfloat16, LargeOperands::kHalves>(args, launch)
             : launch_gated<__half, LargeOperands::kHalves>(args, launch);
}

}  // namespace inferd::cuda
