// Attention of few queries a sequence over its paged keys and values; see attention_decode.cu.
//
// A row is one token, or a run: a few neighbouring tokens of one sequence, each of which sees the
// keys up to its own. A run reads its keys and values once for all of its tokens.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/attention/paged_kv.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

// How many tokens a row has, and how many of its last keys this step writes: those of the tokens of
// its sequence up to its own.
struct DecodeRun {
  int16_t tokens, fresh;
};

// A part of one row: tiles [tile_begin, tile_end) of 16 keys, within keys [first_key, end_key). The
// plan fills blocks of one share a warp: either the same share for all warps, which work on it as a
// team, or a share of its own for each. Device memory; the kernels alone read and write it.
struct alignas(16) DecodeShare {
  int32_t token, slot, row;
  int32_t index, shares;  // the index-th of this row's; shares = 0: nothing to do
  int32_t first_key, end_key, tile_begin, tile_end;
  int16_t team;
  int16_t chained;  // some other share's `next`
  DecodeRun run;    // of the row
  int32_t next;     // what the warp does then: index of a share, 0: nothing
};

// How many blocks a kv head the plan may fill, and how many thread blocks a kv head work on them.
struct DecodeGrid {
  int32_t blocks, ctas;
};

// Row i: query and output of token tokens[i] of the step and of those that follow it in its run,
// each attending to all positions up to its own, of sequence slots[i]. Device arrays, read by the
// kernel, so that a captured launch follows them.
struct DecodePlanParams {
  const int32_t* tokens;     // [rows], or null: row i is token i; -1: the row is padding
  const int32_t* slots;      // [rows]
  const DecodeRun* runs;     // [rows], or null: each row is one token
  const int32_t* positions;  // of the step's tokens; negative: the row is padding, no output
  int32_t rows;
  int32_t window;       // 0: all keys, else keys with position > query position - window
  DecodeGrid grid;      // decode_attention_grid(...)
  int32_t warps;        // decode_attention_warps(...)
  int32_t resident;     // decode_attention_resident(...)
  DecodeShare* shares;  // [grid.blocks, warps] out
};

// What is left to do to q, k and v as a product writes them: norms of the heads, rotation of whole
// heads, and the way of keys and values to the cache.
struct DecodeRope {
  const float* inv_freq = nullptr;  // [head_dim / 2]; null: nothing is left to do
  float attention_factor = 1;       // multiplies cos and sin
  const float* q_norm = nullptr;    // [head_dim] or null, 8-byte aligned
  const float* k_norm = nullptr;    // the same
  float norm_eps = 0;
  void* k_cache = nullptr;  // the k and v of the params' kv, to be written
  void* v_cache = nullptr;
};

struct DecodeAttentionParams {
  // [tokens, >= heads * head_dim], token i at q + i * q_stride; 4-byte aligned. With a rope
  // [tokens, (heads + 2 kv_heads) * head_dim], 16-byte aligned, q_stride a multiple of 8; it is
  // left as it is.
  const void* q;
  int64_t q_stride;
  void* out;  // [tokens, heads * head_dim], token i at out + i * out_stride; 8-byte aligned
  int64_t out_stride;
  PagedKv kv;
  const DecodeShare* shares;  // [grid.blocks, warps] from plan_decode_attention
  int32_t rows;               // as in the plan
  DecodeGrid grid;
  int32_t heads;
  float scale;
  DecodeRope rope = {};     // where decode_attention_takes_rope(..), of rows of one token alone
  int32_t most_tokens = 1;  // of a row; above 1 the plan had runs
  int32_t window = 0;       // as in the plan
  float softcap = 0;        // 0: none, else scores s become softcap tanh(s / softcap)
  const float* sinks = nullptr;  // [heads], or null: AttentionArgs::sinks
  float value_scale = 1;         // what values are multiplied by
  int32_t* tickets;              // [rows, kv_heads], zeroed once; zero again when a launch is done
  void* partials;  // decode_attention_partial_bytes(...), 16-byte aligned, contents do not matter
};

// Warps of a thread block: as many as fit sm_89 with the copies they keep under way.
constexpr int32_t decode_attention_warps(int32_t head_dim, bool kv_is_8_bit) {
  return head_dim > 128 && !kv_is_8_bit ? 2 : 4;
}

// Whether there are kernels with a rope: of 256 dims all registers are in use without one.
constexpr bool decode_attention_takes_rope(int32_t head_dim, bool kv_is_8_bit) {
  return head_dim <= 128 && !kv_is_8_bit;
}

// Tokens that a run may have, with `group` query heads a kv head: what fits the rows of an mma.
constexpr int32_t decode_attention_most_tokens(int32_t group) { return group > 8 ? 1 : 16 / group; }

// Thread blocks a kv head that the device holds at a time, if it is of sm_90.
int32_t decode_attention_resident(int32_t kv_heads, int32_t sm_count);

// For `rows` rows of at most `max_context` keys: a block a row, and more for what may be cut off
// them; no more thread blocks than run at a time. Any larger number of blocks, and any number of
// thread blocks, is correct; captured launches keep them while the lengths change.
DecodeGrid decode_attention_grid(int32_t rows, int32_t max_context, int32_t resident);

// Bytes of `partials` for a plan of this many blocks, of rows of up to most_tokens tokens; all
// launches of a stream share them.
size_t decode_attention_partial_bytes(int32_t blocks, int32_t heads, int32_t head_dim,
                                      int32_t most_tokens = 1);

// Cuts the rows of a step into shares; once a step for each window size of the model's layers.
// Up to 4096 rows, else cudaErrorInvalidValue.
cudaError_t plan_decode_attention(const DecodePlanParams& params, const Launch& launch);

// A Launch is a stream, or more: see launch.h.
// cudaErrorInvalidValue for shapes other than those of attention_decode.cu, point 6, or with a rope
// of attention_decode_with_rope.cu. An early start reads shares, tables and the keys before each
// row's last ahead of its wait: they must be settled, as launch.cuh says, so that the first launch
// after a plan starts plainly. With a rope it also fetches the place of that last key, and does not
// use what lies there.
cudaError_t decode_attention(Half type, const DecodeAttentionParams& params, const Launch& launch);

}  // namespace inferd::cuda
