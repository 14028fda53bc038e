// 1. out[row, head] = softmax(cap(scale * q . K^T)) V over the row's paged keys, one query a row
//    (several: attention_decode_runs.cu; with the work of rope_kv: attention_decode_with_rope.cu;
//    the kernel: attention_decode_kernel.cuh); merges its own partial results, so that a long row
//    is spread over the device in one launch. cap(s) = s, or softcap tanh(s / softcap). A head's
//    sink, where there are any, is one more term of the denominator, added at the very end.
// 2. q [tokens, .. heads * head_dim] and out f16/bf16; caches as in paged_kv.h, of the same type,
//    e4m3, or int8 with a scale a row; everything else as in attention_decode.h, which see.
// 3. grid kv_heads x as many blocks as run at a time. A block is a team of kWarps on one share of a
//    row (a range of 16-key tiles, the warps taking them in turn), or each of its warps has short
//    rows of its own; both go on to another share where the plan says so.
//
//      share of a row   | t0 | t1 | t2 | t3 | t4 | ..    team:  warp = tile % kWarps
//      mma m16n8k16     rows = the heads of the kv head (8 of 16 rows, or all), columns = keys
//
//    The last block of a row and kv head to finish (a ticket) adds the shares up in their order.
//    What is there before this step's keys is fetched ahead of the wait for the kernel before.
// 4. Each warp has a ring of its own, up to 6 stages of 16 keys and values, filled by cp.async;
//    a lone warp's runs on from row to row. 98 KB a block, two blocks an SM on sm_90, one on sm_89.
//    Up to 168 registers at head_dim <= 128; 255 at 256, with 16 rows some more in local memory.
// 5. f32 scores, sums and merge; probabilities rounded to the type of the mma. 8-bit caches are
//    widened to f16, which is exact; q too, clamped to its range. int8: a key's scale multiplies
//    its score, a value's over the largest so far the probability. Relative error against float64:
//    bf16 2.2e-3, f16 2.8e-4. The same bits run to run: no result depends on the order in which
//    blocks finish.
// 6. head_dim 64, 96, 128, 256; 1 to 16 heads a kv head; block sizes that are multiples of 16
//    (others work, slower, by a look-up a row); sm_80 and later. Else cudaErrorInvalidValue.
// 7. Reads 2 * kv_bytes * kv_heads * head_dim * keys. H200, 32/8 heads of 128, blocks of 16 in
//    random order, 4.5 TB/s read ceiling, in a chain with early starts; `plain` is a bare read of
//    as many bytes, launch included. Without early starts 1.3 (1x128) to 3 us more (8x8192: 9).
//      rows x keys   1x128 1x1024 16x1024 128x128 128x200 256x200 128x1024 8x8192 32x8192 1x65536
//      bf16 us         3.1    6.2    21.3    16.9    26.1    52.1      126     68     248    69.4
//      of the ceiling                 70 %    88 %    89 %    89 %     95 %   88 %    96 %    86 %
//      plain us        2.1    3.1    17.4    17.4    26.1    49.7      123     64     242    63.5
//      e4m3 us         5.0    8.0    20.3    14.4    20.2    37.5       78     45     150    48.1
//      int8 us         5.3    8.6    26.7    17.3    25.1    47.5      100     56     193    57.7
//    1x16384: 22.8 (plain 17.6). With the arithmetic left out bf16 takes 18.4 us at 16x1024
//    and 21.7 at 1x16384: the last tiles' latency. 8 bits are bound by the latency of the widening,
//    560 instructions a tile at half the issue rate.
// 8. Split keys: Flash-Decoding (Dao et al. 2023); heads as rows: FlashInfer; paged cache: Kwon
//    et al. 2023; the online softmax: Milakov and Gimelshein 2018.
// 9. Tried, us in a chain: a block for each share the plan may make instead
//    of chains: 21.4 plain launches at 128x128 where 19.4 are needed now, blocks with nothing to do
//    waiting for shared memory. Keys and values without leave-L2-first: 18.2 instead of 16.9 at
//    128x128, 55 not 52 at 256x200. let_next_start() at the end of the stream: 20.7 instead
//    of 18.0. Copies issued ahead of the scores: no difference. Three blocks an SM with shorter
//    rings for e4m3: 44 instead of 48 at 1x65536, 16.3 not 20.3 at 16x1024, but 84 not 78 at
//    128x1024 and 170 not 150 at 32x8192; four: twice as long. The last block adding up all shares
//    in one loop over them: 15 us at 1x16384, now 3. Shares found by every block from the lengths:
//    64 instead of 41 us at 256x128, hence the plan. A team for every row: 26 instead of 21.7 us at
//    128x128. Capping by a branch in the loop: steps of Llama-3-8B at 16x1024 1.8 % longer than
//    before there were caps, 1.2 % in kernels of their own. Unrolled ring start and merge (100 KB
//    of code): 10.3 instead of 8.4 us at 1x1024, instruction misses. 8 warps a block: 32 us at
//    128x128. 2 warps: 5.6 at 1x128. e4m3 widened by integer operations: 124 us at 128x1024.
#include "cuda/attention/attention_decode_kernel.cuh"
#include "cuda/attention/attention_decode_kinds.cuh"

namespace inferd::cuda {

cudaError_t decode_attention(Half type, const DecodeAttentionParams& params, const Launch& launch) {
  const PagedKv& kv = params.kv;
  const DecodeGrid& size = params.grid;
  if (params.rows < 0 || size.blocks < params.rows || size.ctas <= 0 || kv.kv_heads <= 0 ||
      kv.block_size <= 0 || params.heads % kv.kv_heads != 0 || params.heads / kv.kv_heads > 16 ||
      params.heads <= 0 || size.ctas > 65535 || size.blocks > 65535 || params.q_stride % 2 != 0 ||
      params.out_stride % 4 != 0 || params.most_tokens < 1 ||
      params.most_tokens > decode_attention_most_tokens(params.heads / kv.kv_heads)) {
    return cudaErrorInvalidValue;
  }
  const bool has_rope = params.rope.inv_freq != nullptr;
  const bool is_8_bit = kv.type != KvType::kActivation;
  if (has_rope &&
      (!decode_attention_takes_rope(kv.head_dim, is_8_bit) || params.most_tokens > 1 ||
       params.q_stride % 8 != 0 || params.rope.k_cache != kv.k || params.rope.v_cache != kv.v)) {
    return cudaErrorInvalidValue;
  }
  if (params.rows == 0) return cudaSuccess;
  float2* sums = static_cast<float2*>(params.partials);
  const int64_t slots = static_cast<int64_t>(size.blocks) * params.heads * params.most_tokens;
  const DecodeArgs args = {
      .q = params.q,
      .k = kv.k,
      .v = kv.v,
      .out = params.out,
      .q_stride = params.q_stride,
      .out_stride = params.out_stride,
      .tables = kv.block_tables,
      .shares = params.shares,
      .tickets = params.tickets,
      .partial_sums = sums,
      .partial_out = reinterpret_cast<float*>(sums + (slots + 1) / 2 * 2),
      .block_size = Divisor::of(kv.block_size),
      .block_bytes = static_cast<uint32_t>(kv.block_bytes),
      .group = params.heads / kv.kv_heads,
      .max_blocks = kv.max_blocks,
      .most_rows = params.heads / kv.kv_heads * params.most_tokens,
      .window = params.window,
      .most_shares = size.blocks - params.rows + 1,  // one more than there are spare blocks
      .scale = ScoreScale::of(params.scale, params.softcap, params.value_scale),
      .sinks = params.sinks,
      .rope = params.rope,
      .is_bf16 = type == Half::kBF16,
  };
  const dim3 grid(kv.kv_heads, size.ctas);
  if (params.most_tokens > 1) return decode_attention_of_runs(type, kv, args, grid, launch);
  if (has_rope) return decode_attention_with_rope(type, kv, args, grid, launch);
  return choose_cache<DecodeKind::kTokens>(type, kv, args, grid, launch);
}

}  // namespace inferd::cuda
