// 1. attention_decode.cu for runs: rows of a few neighbouring tokens of one sequence, each of which
//    attends to the keys up to its own. Drafted tokens are such rows.
// 2. to 6. As there, but for the query rows of a kv head: those of all tokens of the run, group of
//    each, up to 16 in one mma, so that keys and values are read once for them. A key beyond a
//    row's own end, or before its window, has the score -inf; of a share without a key for a row
//    nothing is added. Up to 8 heads a kv head. Up to 218 registers at head_dim <= 128.
// 7. As there. H200, 32/8 heads of 128, bf16, us in a chain with early starts:
//      sequences x keys    1 token     2     4     5     8 tokens each
//         1 x 1024             6.4   8.5  12.3  11.7  13.6
//         1 x 8192            13.4  15.9  21.2  20.9  23.0
//         8 x 8192            67.7  69.9  73.8   143   144
//        64 x 1024            67.5  69.1  71.8  74.7  75.3
//    A step of Llama-3-8B of 5 tokens of one sequence: 1.09 of one of 1 at 1k context, 1.10 at 8k.
// 8. As there.
// 9. Each token a row of its own, all reading the same keys at about the same time: a step of
//    Llama-3-8B of 5 tokens of one sequence, H200, 1.10 of that of one at 1k context but 1.30 at
//    8k, bound by L2. 32 query rows, in two mma: no registers are left to load ahead, 34.5 us for 5
//    tokens at 1x8192, 23.2 for 2, where one takes 13.4.
#include "cuda/attention/attention_decode_kernel.cuh"
#include "cuda/attention/attention_decode_kinds.cuh"

namespace inferd::cuda {

cudaError_t decode_attention_of_runs(Half type, const PagedKv& kv, const DecodeArgs& args,
                                     dim3 grid, const Launch& launch) {
  return choose_cache<DecodeKind::kRuns>(type, kv, args, grid, launch);
}

}  // namespace inferd::cuda
