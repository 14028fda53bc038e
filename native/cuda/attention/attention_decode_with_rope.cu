// 1. attention_decode.cu for rows whose query, key and value are as a product writes them: norms,
//    rotation and the way of the new key and value to the cache, which rope_kv.cu does elsewhere,
//    are done here too (attention_decode_rope.cuh).
// 2. As there, but q [tokens, (heads + 2 kv_heads) * head_dim], left as it is, and the caches are
//    written as well.
// 3. As there. The place of a row's last key is fetched ahead of the wait with all else, and what
//    lay there is then written over.
// 4. As there, and beside the rings, in up to 99 KB in all, cos and sin of the row's position,
//    4 head_dim bytes a warp. 178 registers at head_dim 128, 193 for more than 8 heads a kv head;
//    at 96 those keep up to 20 bytes in local memory.
// 5. The bits of rope_kv and attention_decode.cu, but for norms, whose sums have another order.
// 6. As there, with head_dim up to 128, 16-bit caches and rows of one token, k_cache and v_cache
//    being k and v of the kv. Else cudaErrorInvalidValue.
// 7. As there. H200, 32/8 heads of 128, bf16, us that rope and attention add behind a kernel that
//    leaves room for this one, and behind one that leaves room for rope_kv alone, in two kernels
//    and in one:
//      rows x keys        1x128      16x1024     128x128     256x128     8x8192    32x8192
//      room for both     4.4  3.7   21.7  21.3  20.0  18.7  38.8  35.8  69.3  68.7   251   250
//      for rope_kv       4.9  6.0   22.8  28.2  20.6  20.6  38.8  38.3  69.5  69.2   251   253
//    Steps of Llama-3-8B in one, with the kernels of point 9: 32x128 4.467 instead of 4.508 ms,
//    128x128 5.957 (6.043), 256x128 8.750 (8.861), 16x1024 and 64x128 0.2 % less, 1x128 0.4 % more.
// 8. As there; FlashInfer's decode kernels can rotate within too (Ye et al. 2025), there all keys
//    of the cache at every read.
// 9. The new key staged in shared memory at the row's start: as fast, longer. Kernels that
//    serve rows with and without a rope, by a flag: 179 registers instead of 168 for those without,
//    at 128 dims. In these, angles kept in registers through the loop: spills at 96 and 256 dims.
#include "cuda/attention/attention_decode_kernel.cuh"
#include "cuda/attention/attention_decode_kinds.cuh"

namespace inferd::cuda {

cudaError_t decode_attention_with_rope(Half type, const PagedKv& kv, const DecodeArgs& args,
                                       dim3 grid, const Launch& launch) {
  return choose_cache<DecodeKind::kWithRope>(type, kv, args, grid, launch);
}

}  // namespace inferd::cuda
