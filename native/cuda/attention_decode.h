// Attention of rows with one query each over their paged keys and values; see attention_decode.cu.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "half_type.h"
#include "paged_kv.h"

namespace inferd::cuda {

// Row i: query and output of token tokens[i] of the step, attending to positions 0..positions[i] of
// sequence slots[i]. Device arrays, read by the kernel, so that a captured launch follows them.
struct DecodeAttentionParams {
  const void*
      q;  // [tokens, >= heads * head_dim], token i at q + i * q_stride elements; 4-byte aligned
  int64_t q_stride;
  void* out;  // [tokens, heads * head_dim], token i at out + i * out_stride; 8-byte aligned
  int64_t out_stride;
  PagedKv kv;
  const int32_t* tokens;  // [rows], or null: row i is token i
  const int32_t* slots;   // [rows]
  const int32_t*
      positions;  // [rows] position of the query; negative: the row is padding, no output
  int32_t rows, heads;
  int32_t window;  // 0: all keys, else keys with position > query position - window
  int32_t ctas;    // decode_attention_ctas(...)
  float scale;
  int32_t* tickets;  // [rows, kv_heads], zeroed once; zero again when a launch is done
  void* partials;    // decode_attention_partial_bytes(...), 16-byte aligned, contents do not matter
};

// Shares of work a kv head for `rows` rows of at most `max_context` keys: rows, and what may be
// split.
int32_t decode_attention_ctas(int32_t rows, int32_t kv_heads, int32_t max_context,
                              int32_t sm_count);

// Bytes of `partials` for launches of up to `max_rows` rows; all launches of a stream share them.
size_t decode_attention_partial_bytes(int32_t max_rows, int32_t heads, int32_t kv_heads,
                                      int32_t head_dim, int32_t sm_count);

// cudaErrorInvalidValue for shapes other than those of attention_decode.cu, point 6.
cudaError_t decode_attention(Half type, const DecodeAttentionParams& params, cudaStream_t stream);

}  // namespace inferd::cuda
