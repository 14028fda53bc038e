// 1. y = x w^T (+ bias) (+ y) for m <= 16 rows; gated: y = silu(x w_gate^T) * (x w_up^T). Either
//    also of x divided by the root mean square of its rows.
// 2. x [m, k] and w [n, k] f16 or bf16, w packed, 16-byte aligned rows; y [m, n] of the same type
//    or f32; bias [n] of y's type.
// 3. One block a multiprocessor takes tiles of 16 rows of w in turn. Its 16 warps cut k into pieces
//    of 4 KB of weights, dealt round robin; a lane fetches exactly the bytes that it multiplies:
//
//        w row g     | lane t: 8 values | t+1 | t+2 | t+3 | next 32 columns ...    g = lane / 4
//        w row g + 8 | lane t: 8 values | ...                                      t = lane % 4
//
//    so the ring in shared memory is a queue of each lane alone and needs no barrier. The product
//    is mma.m16n8k16 with w as A and x as B; both sides take the columns in the order that 16-byte
//    loads give, which a sum over k does not notice. The queues run on across tiles: while a block
//    adds up its warps' sums for one tile, the weights of the next are on their way. They are full
//    before the kernel waits for the one ahead of it.
//    A warp has the same columns in every tile: up to k = 4096 it keeps x of them in registers, so
//    that a block reads x once. Above, x comes through L1 for every tile, which then has 32 rows
//    for m > 8.
//    Gated, 8 of a tile's 16 rows are gate rows and 8 the up rows of the same outputs.
//    The rows' squares are summed as products of x with itself, in a block's first tile, and the
//    sums of every tile multiplied by 1 / rms: x is what it was before the norm.
// 4. Shared memory 128 KB ring, or 192 KB where a block takes many tiles, and 17 KB sums (35 KB for
//    m > 8); 8 warps and half of it where a block may have only 99 KB. Up to 128 registers. x comes
//    through what is left of L1.
// 5. f32 accumulation over k within a warp, then over warps in a fixed order; one rounding at the
//    end. Relative error 2^-9 (bf16), 2^-11 (f16) of the exact product of the rounded inputs.
// 6. From sm_80; k a multiple of 8, else cudaErrorInvalidValue.
// 7. Bytes 2 * n * k: bound by memory. Llama-3-8B on an H200 with early starts, weights in turn, us
//    (of the read ceiling, 4.50 TB/s; beside it cuBLASLt's best of 8 for m = 1):
//
//      m     qkv               o                gate_up           down             head
//      1     12.4 90 % (15.4)  8.6 87 % (12.5)  54.6 95 % (55.3)  28.4 92 % (31)   241 97 % (242)
//      8     13.3 84 %         9.2 81 %         55.6 94 %         30.3 86 %        245 95 %
//      16    14.5 77 %         10.5 71 %        58.1 90 %         31.6 82 %        251 93 %
//
//    With a small kernel ahead, norm_x and (the norm apart), m = 1, 8, 16: qkv 13.6 (14.9), 14.2
//    (16.3), 15.8 (17.4), gate_up with silu 56.2 (57.5), 57.2 (59.3), 60.9 (63.0). What m = 16 adds
//    is x, which every block reads: 17 MB from L2. Steps of 16x1024, all products by this kernel,
//    4.91 to 4.98 ms; by cuBLASLt and the streaming GEMM 5.20 to 5.32.
// 8. Weights as the streamed operand of tensor core tiles: Marlin (Frantar et al. 2024).
// 9. A block a tile with loads to registers: the memory pipe drains at each tile's end (o 11.6 us,
//    gate_up 58.8). 8 warps with 6 stages: less L1 for x, o 10.6, head at m = 8 309 us instead of
//    253. let_next_start() after the wait: a decode layer of four linears and four small kernels
//    122.6 us instead of 114.5. x through L1 for every tile, m = 16: qkv 16.3, o 11.1, gate_up
//    63.4, and 76 in tiles of 16 rows. 192 KB for all: o at m = 16 11.5, qkv 15.3. One thread for
//    each sum over the warps: 1 % more in gate_up. Loads in the order of 128-byte lines, or without
//    the L2 policy: no difference.
#include "cuda/gemm/small_gemm_tile.cuh"

namespace inferd::cuda {
namespace {

template <typename T>
cudaError_t dispatch_out(const GemmArgs& p, const Launch& launch) {
  using Chunks = PlainChunks<T>;
  return p.out == GemmOut::kF32 ? small_gemm_as<T, Chunks, float>(p, launch)
                                : small_gemm_as<T, Chunks, T>(p, launch);
}

}  // namespace

cudaError_t small_gemm(const GemmArgs& p, const Launch& launch) {
  if (p.m < 1 || p.m > kSmallGemmRows || p.n < 1 || p.k < 8 || p.k % 8 != 0 ||
      p.x_stride % 8 != 0 || ((p.gated || p.norm_x) && (p.add_to_y || p.out == GemmOut::kF32))) {
    return cudaErrorInvalidValue;
  }
  return p.type == Half::kBF16 ? dispatch_out<__nv_bfloat16>(p, launch)
                               : dispatch_out<__half>(p, launch);
}

}  // namespace inferd::cuda
